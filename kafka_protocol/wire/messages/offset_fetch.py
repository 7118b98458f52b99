"""OffsetFetch (key 9): the schemas of all versions."""

REQUEST = """
9 OffsetFetch req 1-10 f6 partitions |
    GroupId:str 1-7,
    Topics:[]{Name:str, PartitionIndexes:[]i32}?2-7 1-7,
    Groups:[]{
        GroupId:str, MemberId:str?=null 9+, MemberEpoch:i32=-1 9+,
        Topics:[]{Name:str 8-9, TopicId:uuid 10+, PartitionIndexes:[]i32}?
    } 8+,
    RequireStable:bool 7+
"""

RESPONSE = """
9 OffsetFetch rsp 1-10 f6 |
    ThrottleTimeMs:i32 3+,
    Topics:[]{
        Name:str,
        Partitions:[]{
            PartitionIndex:i32, CommittedOffset:i64, CommittedLeaderEpoch:i32=-1 5-7,
            Metadata:str?, ErrorCode:i16
        }
    } 1-7,
    ErrorCode:i16 2-7,
    Groups:[]{
        GroupId:str,
        Topics:[]{
            Name:str 8-9, TopicId:uuid 10+,
            Partitions:[]{
                PartitionIndex:i32, CommittedOffset:i64, CommittedLeaderEpoch:i32=-1,
                Metadata:str?, ErrorCode:i16
            }
        },
        ErrorCode:i16
    } 8+
"""

MIRRORED = """
topics topic name 0-7 / partition_indexes>partitions partition >partition_index
groups - group_id 8+ / topics topic name,topic_id
    / partition_indexes>partitions partition >partition_index
also absent_is_all
"""
