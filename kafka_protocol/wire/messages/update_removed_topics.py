"""UpdateRemovedTopics (key 32002): a request of ours, which Kafka does not have."""

REQUEST = """
32002 UpdateRemovedTopics req 0 f0 partitions |
    BrokerId:i32, BrokerEpoch:i64, Emptied:[]uuid
"""

RESPONSE = """
32002 UpdateRemovedTopics rsp 0 f0 | ThrottleTimeMs:i32, ErrorCode:i16
"""
