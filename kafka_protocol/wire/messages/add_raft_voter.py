"""AddRaftVoter (key 80): the schemas of all versions."""

REQUEST = """
80 AddRaftVoter req 0-1 f0 quorum |
    ClusterId:str?, TimeoutMs:i32, VoterId:i32, VoterDirectoryId:uuid,
    Listeners:[]{Name:str, Host:str, Port:u16},
    AckWhenCommitted:bool=true 1+
"""

RESPONSE = """
80 AddRaftVoter rsp 0-1 f0 | ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?
"""
