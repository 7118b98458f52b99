"""OffsetCommit (key 8): the schemas of all versions."""

REQUEST = """
8 OffsetCommit req 2-10 f8 partitions |
    GroupId:str, GenerationIdOrMemberEpoch:i32=-1, MemberId:str, GroupInstanceId:str?=null 7+,
    RetentionTimeMs:i64=-1 2-4,
    Topics:[]{
        Name:str 2-9, TopicId:uuid 10+,
        Partitions:[]{
            PartitionIndex:i32, CommittedOffset:i64, CommittedLeaderEpoch:i32=-1 6+,
            CommittedMetadata:str?
        }
    }
"""

RESPONSE = """
8 OffsetCommit rsp 2-10 f8 |
    ThrottleTimeMs:i32 3+,
    Topics:[]{Name:str 2-9, TopicId:uuid 10+, Partitions:[]{PartitionIndex:i32, ErrorCode:i16}}
"""

MIRRORED = "topics topic name,topic_id / partitions partition partition_index"
