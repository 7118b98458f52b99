"""Heartbeat (key 12): the schemas of all versions."""

REQUEST = """
12 Heartbeat req 0-4 f4 |
    GroupId:str, GenerationId:i32, MemberId:str, GroupInstanceId:str?=null 3+
"""

RESPONSE = """
12 Heartbeat rsp 0-4 f4 | ThrottleTimeMs:i32 1+, ErrorCode:i16
"""
