"""AssignReplicasToDirs (key 73): the schemas of all versions."""

REQUEST = """
73 AssignReplicasToDirs req 0 f0 partitions |
    BrokerId:i32, BrokerEpoch:i64=-1,
    Directories:[]{Id:uuid, Topics:[]{TopicId:uuid, Partitions:[]{PartitionIndex:i32}}},
    Forgets:i8@10000=0
"""

RESPONSE = """
73 AssignReplicasToDirs rsp 0 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16,
    Directories:[]{
        Id:uuid,
        Topics:[]{TopicId:uuid, Partitions:[]{PartitionIndex:i32, ErrorCode:i16}}
    }
"""
