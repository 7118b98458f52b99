"""AlterPartitionReassignments (key 45): the schemas of all versions."""

REQUEST = """
45 AlterPartitionReassignments req 0-1 f0 partitions |
    TimeoutMs:i32=60000, AllowReplicationFactorChange:bool=true 1+,
    Topics:[]{Name:str, Partitions:[]{PartitionIndex:i32, Replicas:[]i32?=null}}
"""

RESPONSE = """
45 AlterPartitionReassignments rsp 0-1 f0 |
    ThrottleTimeMs:i32, AllowReplicationFactorChange:bool=true 1+, ErrorCode:i16,
    ErrorMessage:str?,
    Responses:[]{Name:str, Partitions:[]{PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str?}}
"""
