"""EndQuorumEpoch (key 54): the schemas of all versions."""

REQUEST = """
54 EndQuorumEpoch req 0-1 f1 quorum |
    ClusterId:str?=null,
    Topics:[]{
        TopicName:str,
        Partitions:[]{
            PartitionIndex:i32, LeaderId:i32, LeaderEpoch:i32, PreferredSuccessors:[]i32 0,
            PreferredCandidates:[]{CandidateId:i32, CandidateDirectoryId:uuid} 1+
        }
    },
    LeaderEndpoints:[]{Name:str, Host:str, Port:u16} 1+
"""

RESPONSE = """
54 EndQuorumEpoch rsp 0-1 f1 |
    ErrorCode:i16,
    Topics:[]{
        TopicName:str,
        Partitions:[]{PartitionIndex:i32, ErrorCode:i16, LeaderId:i32, LeaderEpoch:i32}
    },
    NodeEndpoints:[]{NodeId:i32, Host:str, Port:u16}@0 1+
"""
