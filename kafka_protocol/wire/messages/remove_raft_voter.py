"""RemoveRaftVoter (key 81): the schemas of all versions."""

REQUEST = """
81 RemoveRaftVoter req 0 f0 | ClusterId:str?, VoterId:i32, VoterDirectoryId:uuid
"""

RESPONSE = """
81 RemoveRaftVoter rsp 0 f0 | ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?
"""
