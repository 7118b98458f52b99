"""ListOffsets (key 2): the schemas of all versions."""

REQUEST = """
2 ListOffsets req 1-11 f6 partitions |
    ReplicaId:i32, IsolationLevel:i8 2+,
    Topics:[]{
        Name:str,
        Partitions:[]{PartitionIndex:i32, CurrentLeaderEpoch:i32=-1 4+, Timestamp:i64}
    },
    TimeoutMs:i32 10+
"""

RESPONSE = """
2 ListOffsets rsp 1-11 f6 |
    ThrottleTimeMs:i32 2+,
    Topics:[]{
        Name:str,
        Partitions:[]{
            PartitionIndex:i32, ErrorCode:i16, Timestamp:i64=-1, Offset:i64=-1,
            LeaderEpoch:i32=-1 4+
        }
    }
"""

MIRRORED = "topics topic name / partitions partition partition_index"
