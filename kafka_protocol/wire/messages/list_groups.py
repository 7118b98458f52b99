"""ListGroups (key 16): the schemas of all versions."""

REQUEST = """
16 ListGroups req 0-5 f3 few | StatesFilter:[]str 4+, TypesFilter:[]str 5+
"""

RESPONSE = """
16 ListGroups rsp 0-5 f3 |
    ThrottleTimeMs:i32 1+, ErrorCode:i16,
    Groups:[]{GroupId:str, ProtocolType:str, GroupState:str 4+, GroupType:str 5+}
"""
