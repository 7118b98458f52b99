"""DescribeQuorum (key 55): the schemas of all versions."""

REQUEST = """
55 DescribeQuorum req 0-2 f0 quorum | Topics:[]{TopicName:str, Partitions:[]{PartitionIndex:i32}}
"""

RESPONSE = """
55 DescribeQuorum rsp 0-2 f0 |
    ErrorCode:i16, ErrorMessage:str? 2+,
    Topics:[]{
        TopicName:str,
        Partitions:[]{
            PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str? 2+, LeaderId:i32,
            LeaderEpoch:i32, HighWatermark:i64,
            CurrentVoters:[]{
                ReplicaId:i32, ReplicaDirectoryId:uuid 2+, LogEndOffset:i64,
                LastFetchTimestamp:i64=-1 1+, LastCaughtUpTimestamp:i64=-1 1+
            },
            Observers:[]{
                ReplicaId:i32, ReplicaDirectoryId:uuid 2+, LogEndOffset:i64,
                LastFetchTimestamp:i64=-1 1+, LastCaughtUpTimestamp:i64=-1 1+
            }
        }
    },
    Nodes:[]{NodeId:i32, Listeners:[]{Name:str, Host:str, Port:u16}} 2+
"""
