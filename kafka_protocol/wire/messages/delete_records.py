"""DeleteRecords (key 21): the schemas of all versions."""

REQUEST = """
21 DeleteRecords req 0-2 f2 partitions |
    Topics:[]{Name:str, Partitions:[]{PartitionIndex:i32, Offset:i64, RestoreEnd:i64@10000=-1 2+}},
    TimeoutMs:i32
"""

RESPONSE = """
21 DeleteRecords rsp 0-2 f2 |
    ThrottleTimeMs:i32,
    Topics:[]{
        Name:str,
        Partitions:[]{
            PartitionIndex:i32, LowWatermark:i64, ErrorCode:i16,
            RemoteEnd:i64@10000=-1 2+, LocalEnd:i64@10001=-1 2+
        }
    }
"""

MIRRORED = "topics topic name / partitions partition partition_index"
