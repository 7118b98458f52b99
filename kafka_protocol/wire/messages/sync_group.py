"""SyncGroup (key 14): the schemas of all versions."""

REQUEST = """
14 SyncGroup req 0-5 f4 members |
    GroupId:str, GenerationId:i32, MemberId:str, GroupInstanceId:str?=null 3+,
    ProtocolType:str?=null 5+, ProtocolName:str?=null 5+,
    Assignments:[]{MemberId:str, Assignment:bytes}
"""

RESPONSE = """
14 SyncGroup rsp 0-5 f4 |
    ThrottleTimeMs:i32 1+, ErrorCode:i16, ProtocolType:str?=null 5+, ProtocolName:str?=null 5+,
    Assignment:bytes
"""
