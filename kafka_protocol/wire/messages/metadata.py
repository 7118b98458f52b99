"""Metadata (key 3): the schemas of all versions."""

REQUEST = """
3 Metadata req 0-13 f9 partitions |
    Topics:[]{TopicId:uuid 10+, Name:str?10+}?1+,
    AllowAutoTopicCreation:bool=true 4+, IncludeClusterAuthorizedOperations:bool 8-10,
    IncludeTopicAuthorizedOperations:bool 8+
"""

RESPONSE = """
3 Metadata rsp 0-13 f9 |
    ThrottleTimeMs:i32 3+,
    Brokers:[]{NodeId:i32, Host:str, Port:i32, Rack:str?=null 1+},
    ClusterId:str?=null 2+, ControllerId:i32=-1 1+,
    Topics:[]{
        ErrorCode:i16, Name:str?12+, TopicId:uuid 10+, IsInternal:bool 1+,
        Partitions:[]{
            ErrorCode:i16, PartitionIndex:i32, LeaderId:i32, LeaderEpoch:i32=-1 7+,
            ReplicaNodes:[]i32, IsrNodes:[]i32, OfflineReplicas:[]i32 5+
        },
        TopicAuthorizedOperations:i32=-2147483648 8+
    },
    ClusterAuthorizedOperations:i32=-2147483648 8-10, ErrorCode:i16 13+
"""

MIRRORED = """
topics topic name,topic_id
also always_served top_is_special absent_is_all
"""
