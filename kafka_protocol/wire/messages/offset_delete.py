"""OffsetDelete (key 47): the schemas of all versions."""

REQUEST = """
47 OffsetDelete req 0 f- partitions |
    GroupId:str, Topics:[]{Name:str, Partitions:[]{PartitionIndex:i32}}
"""

RESPONSE = """
47 OffsetDelete rsp 0 f- |
    ErrorCode:i16, ThrottleTimeMs:i32,
    Topics:[]{Name:str, Partitions:[]{PartitionIndex:i32, ErrorCode:i16}}
"""

MIRRORED = "topics topic name / partitions partition partition_index"
