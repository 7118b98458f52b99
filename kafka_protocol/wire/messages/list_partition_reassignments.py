"""ListPartitionReassignments (key 46): the schemas of all versions."""

REQUEST = """
46 ListPartitionReassignments req 0 f0 partitions |
    TimeoutMs:i32=60000,
    Topics:[]{Name:str, PartitionIndexes:[]i32}?=null
"""

RESPONSE = """
46 ListPartitionReassignments rsp 0 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?,
    Topics:[]{
        Name:str,
        Partitions:[]{
            PartitionIndex:i32, Replicas:[]i32, AddingReplicas:[]i32, RemovingReplicas:[]i32
        }
    }
"""
