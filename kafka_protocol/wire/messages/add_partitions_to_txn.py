"""AddPartitionsToTxn (key 24): the schemas of all versions."""

REQUEST = """
24 AddPartitionsToTxn req 0-5 f3 partitions |
    Transactions:[]{
        TransactionalId:str, ProducerId:i64, ProducerEpoch:i16, VerifyOnly:bool,
        Topics:[]{Name:str, Partitions:[]i32}
    } 4+,
    V3AndBelowTransactionalId:str 0-3, V3AndBelowProducerId:i64 0-3,
    V3AndBelowProducerEpoch:i16 0-3,
    V3AndBelowTopics:[]{Name:str, Partitions:[]i32} 0-3
"""

RESPONSE = """
24 AddPartitionsToTxn rsp 0-5 f3 |
    ThrottleTimeMs:i32, ErrorCode:i16 4+,
    ResultsByTransaction:[]{
        TransactionalId:str,
        TopicResults:[]{
            Name:str,
            ResultsByPartition:[]{PartitionIndex:i32, PartitionErrorCode:i16}
        }
    } 4+,
    ResultsByTopicV3AndBelow:[]{
        Name:str,
        ResultsByPartition:[]{PartitionIndex:i32, PartitionErrorCode:i16}
    } 0-3
"""
