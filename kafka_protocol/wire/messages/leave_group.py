"""LeaveGroup (key 13): the schemas of all versions."""

REQUEST = """
13 LeaveGroup req 0-5 f4 members |
    GroupId:str, MemberId:str 0-2,
    Members:[]{MemberId:str, GroupInstanceId:str?=null, Reason:str?=null 5+} 3+
"""

RESPONSE = """
13 LeaveGroup rsp 0-5 f4 |
    ThrottleTimeMs:i32 1+, ErrorCode:i16,
    Members:[]{MemberId:str, GroupInstanceId:str?, ErrorCode:i16} 3+
"""
