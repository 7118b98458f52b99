"""ElectLeaders (key 43): the schemas of all versions."""

REQUEST = """
43 ElectLeaders req 0-2 f2 partitions |
    ElectionType:i8 1+,
    TopicPartitions:[]{Topic:str, Partitions:[]i32}?,
    TimeoutMs:i32=60000
"""

RESPONSE = """
43 ElectLeaders rsp 0-2 f2 |
    ThrottleTimeMs:i32, ErrorCode:i16 1+,
    ReplicaElectionResults:[]{
        Topic:str,
        PartitionResult:[]{PartitionId:i32, ErrorCode:i16, ErrorMessage:str?}
    }
"""

MIRRORED = """
topic_partitions>replica_election_results topic topic
    / partitions>partition_result partition >partition_id
also absent_is_all
"""
