"""Vote (key 52): the schemas of all versions."""

REQUEST = """
52 Vote req 0-2 f0 quorum |
    ClusterId:str?=null, VoterId:i32=-1 1+,
    Topics:[]{
        TopicName:str,
        Partitions:[]{
            PartitionIndex:i32, ReplicaEpoch:i32, ReplicaId:i32, ReplicaDirectoryId:uuid 1+,
            VoterDirectoryId:uuid 1+, LastOffsetEpoch:i32, LastOffset:i64, PreVote:bool 2+
        }
    }
"""

RESPONSE = """
52 Vote rsp 0-2 f0 |
    ErrorCode:i16,
    Topics:[]{
        TopicName:str,
        Partitions:[]{
            PartitionIndex:i32, ErrorCode:i16, LeaderId:i32, LeaderEpoch:i32, VoteGranted:bool
        }
    },
    NodeEndpoints:[]{NodeId:i32, Host:str, Port:u16}@0 1+
"""
