"""DescribeTopicPartitions (key 75): the schemas of all versions."""

REQUEST = """
75 DescribeTopicPartitions req 0 f0 partitions |
    Topics:[]{Name:str},
    ResponsePartitionLimit:i32=2000,
    Cursor:{TopicName:str, PartitionIndex:i32}?=null
"""

RESPONSE = """
75 DescribeTopicPartitions rsp 0 f0 |
    ThrottleTimeMs:i32,
    Topics:[]{
        ErrorCode:i16, Name:str?, TopicId:uuid, IsInternal:bool,
        Partitions:[]{
            ErrorCode:i16, PartitionIndex:i32, LeaderId:i32, LeaderEpoch:i32=-1,
            ReplicaNodes:[]i32, IsrNodes:[]i32, EligibleLeaderReplicas:[]i32?=null,
            LastKnownElr:[]i32?=null, OfflineReplicas:[]i32
        },
        TopicAuthorizedOperations:i32=-2147483648
    },
    NextCursor:{TopicName:str, PartitionIndex:i32}?=null
"""

MIRRORED = """
topics topic name
also absent_is_all
"""
