"""BeginQuorumEpoch (key 53): the schemas of all versions."""

REQUEST = """
53 BeginQuorumEpoch req 0-1 f1 quorum |
    ClusterId:str?=null, VoterId:i32=-1 1+,
    Topics:[]{
        TopicName:str,
        Partitions:[]{
            PartitionIndex:i32, VoterDirectoryId:uuid 1+, LeaderId:i32, LeaderEpoch:i32
        }
    },
    LeaderEndpoints:[]{Name:str, Host:str, Port:u16} 1+
"""

RESPONSE = """
53 BeginQuorumEpoch rsp 0-1 f1 |
    ErrorCode:i16,
    Topics:[]{
        TopicName:str,
        Partitions:[]{PartitionIndex:i32, ErrorCode:i16, LeaderId:i32, LeaderEpoch:i32}
    },
    NodeEndpoints:[]{NodeId:i32, Host:str, Port:u16}@0 1+
"""
