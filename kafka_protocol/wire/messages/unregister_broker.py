"""UnregisterBroker (key 64): the schemas of all versions."""

REQUEST = """
64 UnregisterBroker req 0 f0 | BrokerId:i32
"""

RESPONSE = """
64 UnregisterBroker rsp 0 f0 | ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?
"""
