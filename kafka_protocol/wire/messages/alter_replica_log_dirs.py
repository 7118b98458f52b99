"""AlterReplicaLogDirs (key 34): the schemas of all versions."""

REQUEST = """
34 AlterReplicaLogDirs req 1-2 f2 partitions |
    Dirs:[]{Path:str, Topics:[]{Name:str, Partitions:[]i32}}
"""

RESPONSE = """
34 AlterReplicaLogDirs rsp 1-2 f2 |
    ThrottleTimeMs:i32,
    Results:[]{TopicName:str, Partitions:[]{PartitionIndex:i32, ErrorCode:i16}}
"""
