"""Fetch (key 1): the schemas of all versions."""

REQUEST = """
1 Fetch req 4-18 f12 partitions |
    ClusterId:str?@0=null 12+, ReplicaId:i32=-1 4-14,
    ReplicaState:{ReplicaId:i32=-1, ReplicaEpoch:i64=-1}@1 15+,
    MaxWaitMs:i32, MinBytes:i32, MaxBytes:i32=0x7fffffff, IsolationLevel:i8, SessionId:i32 7+,
    SessionEpoch:i32=-1 7+,
    Topics:[]{
        Topic:str 4-12, TopicId:uuid 13+,
        Partitions:[]{
            Partition:i32, CurrentLeaderEpoch:i32=-1 9+, FetchOffset:i64,
            LastFetchedEpoch:i32=-1 12+, LogStartOffset:i64=-1 5+, PartitionMaxBytes:i32,
            ReplicaDirectoryId:uuid@0 17+, HighWatermark:i64@1=9223372036854775807 18+
        }
    },
    ForgottenTopicsData:[]{Topic:str 7-12, TopicId:uuid 13+, Partitions:[]i32} 7+,
    RackId:str 11+
"""

RESPONSE = """
1 Fetch rsp 4-18 f12 |
    ThrottleTimeMs:i32, ErrorCode:i16 7+, SessionId:i32 7+,
    Responses:[]{
        Topic:str 4-12, TopicId:uuid 13+,
        Partitions:[]{
            PartitionIndex:i32, ErrorCode:i16, HighWatermark:i64, LastStableOffset:i64=-1,
            LogStartOffset:i64=-1 5+,
            DivergingEpoch:{Epoch:i32=-1, EndOffset:i64=-1}@0 12+,
            CurrentLeader:{LeaderId:i32=-1, LeaderEpoch:i32=-1}@1 12+,
            SnapshotId:{EndOffset:i64=-1, Epoch:i32=-1}@2 12+,
            AbortedTransactions:[]{ProducerId:i64, FirstOffset:i64}?,
            PreferredReadReplica:i32=-1 11+, Records:rec?
        }
    },
    NodeEndpoints:[]{NodeId:i32, Host:str, Port:i32, Rack:str?=null}@0 16+
"""

MIRRORED = """
topics>responses topic topic,topic_id / partitions partition partition>partition_index
also top_is_special
"""
