"""RaiseLeaderEpochs (key 32001): a request of ours, which Kafka does not have."""

REQUEST = """
32001 RaiseLeaderEpochs req 0 f0 partitions |
    BrokerId:i32, BrokerEpoch:i64,
    Partitions:[]{TopicId:uuid, PartitionIndex:i32, LeaderEpoch:i32, UsedEpoch:i32}
"""

RESPONSE = """
32001 RaiseLeaderEpochs rsp 0 f0 | ThrottleTimeMs:i32, ErrorCode:i16,
    Partitions:[]{TopicId:uuid, PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str?}
"""
