"""ConsumerGroupHeartbeat (key 68): the schemas of all versions."""

REQUEST = """
68 ConsumerGroupHeartbeat req 0-1 f0 partitions |
    GroupId:str, MemberId:str, MemberEpoch:i32, InstanceId:str?=null, RackId:str?=null,
    RebalanceTimeoutMs:i32=-1, SubscribedTopicNames:[]str?=null,
    SubscribedTopicRegex:str?=null 1+, ServerAssignor:str?=null,
    TopicPartitions:[]{TopicId:uuid, Partitions:[]i32}?=null
"""

RESPONSE = """
68 ConsumerGroupHeartbeat rsp 0-1 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?=null, MemberId:str?=null,
    MemberEpoch:i32, HeartbeatIntervalMs:i32,
    Assignment:{TopicPartitions:[]{TopicId:uuid, Partitions:[]i32}}?=null
"""
