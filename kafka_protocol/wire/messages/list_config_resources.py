"""ListConfigResources (key 74): the schemas of all versions."""

REQUEST = """
74 ListConfigResources req 0-1 f0 few | ResourceTypes:[]i8 1+
"""

RESPONSE = """
74 ListConfigResources rsp 0-1 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16,
    ConfigResources:[]{ResourceName:str, ResourceType:i8=16 1+}
"""
