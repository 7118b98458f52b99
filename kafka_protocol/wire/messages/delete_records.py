"""DeleteRecords (key 21): the schemas of all versions."""

REQUEST = """
21 DeleteRecords req 0-2 f2 partitions |
    Topics:[]{Name:str, Partitions:[]{PartitionIndex:i32, Offset:i64}},
    TimeoutMs:i32
"""

RESPONSE = """
21 DeleteRecords rsp 0-2 f2 |
    ThrottleTimeMs:i32,
    Topics:[]{Name:str, Partitions:[]{PartitionIndex:i32, LowWatermark:i64, ErrorCode:i16}}
"""

MIRRORED = "topics topic name / partitions partition partition_index"
