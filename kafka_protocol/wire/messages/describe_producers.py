"""DescribeProducers (key 61): the schemas of all versions."""

REQUEST = """
61 DescribeProducers req 0 f0 partitions | Topics:[]{Name:str, PartitionIndexes:[]i32}
"""

RESPONSE = """
61 DescribeProducers rsp 0 f0 |
    ThrottleTimeMs:i32,
    Topics:[]{
        Name:str,
        Partitions:[]{
            PartitionIndex:i32, ErrorCode:i16, ErrorMessage:str?=null,
            ActiveProducers:[]{
                ProducerId:i64, ProducerEpoch:i32, LastSequence:i32=-1, LastTimestamp:i64=-1,
                CoordinatorEpoch:i32, CurrentTxnStartOffset:i64=-1
            }
        }
    }
"""
