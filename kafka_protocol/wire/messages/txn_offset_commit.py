"""TxnOffsetCommit (key 28): the schemas of all versions."""

REQUEST = """
28 TxnOffsetCommit req 0-5 f3 partitions |
    TransactionalId:str, GroupId:str, ProducerId:i64, ProducerEpoch:i16, GenerationId:i32=-1 3+,
    MemberId:str 3+, GroupInstanceId:str?=null 3+,
    Topics:[]{
        Name:str,
        Partitions:[]{
            PartitionIndex:i32, CommittedOffset:i64, CommittedLeaderEpoch:i32=-1 2+,
            CommittedMetadata:str?
        }
    }
"""

RESPONSE = """
28 TxnOffsetCommit rsp 0-5 f3 |
    ThrottleTimeMs:i32,
    Topics:[]{Name:str, Partitions:[]{PartitionIndex:i32, ErrorCode:i16}}
"""
