"""UpdateRaftVoter (key 82): the schemas of all versions."""

REQUEST = """
82 UpdateRaftVoter req 0 f0 quorum |
    ClusterId:str?, CurrentLeaderEpoch:i32, VoterId:i32, VoterDirectoryId:uuid,
    Listeners:[]{Name:str, Host:str, Port:u16},
    KRaftVersionFeature:{MinSupportedVersion:i16, MaxSupportedVersion:i16}
"""

RESPONSE = """
82 UpdateRaftVoter rsp 0 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16,
    CurrentLeader:{LeaderId:i32=-1, LeaderEpoch:i32=-1, Host:str, Port:i32}@0
"""
