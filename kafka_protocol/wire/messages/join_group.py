"""JoinGroup (key 11): the schemas of all versions."""

REQUEST = """
11 JoinGroup req 0-9 f6 few |
    GroupId:str, SessionTimeoutMs:i32, RebalanceTimeoutMs:i32=-1 1+, MemberId:str,
    GroupInstanceId:str?=null 5+, ProtocolType:str,
    Protocols:[]{Name:str, Metadata:bytes},
    Reason:str?=null 8+
"""

RESPONSE = """
11 JoinGroup rsp 0-9 f6 |
    ThrottleTimeMs:i32 2+, ErrorCode:i16, GenerationId:i32=-1, ProtocolType:str?=null 7+,
    ProtocolName:str?7+, Leader:str, SkipAssignment:bool 9+, MemberId:str,
    Members:[]{MemberId:str, GroupInstanceId:str?=null 5+, Metadata:bytes}
"""
