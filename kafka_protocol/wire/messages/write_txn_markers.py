"""WriteTxnMarkers (key 27): the schemas of all versions."""

REQUEST = """
27 WriteTxnMarkers req 1-2 f1 partitions |
    Markers:[]{
        ProducerId:i64, ProducerEpoch:i16, TransactionResult:bool,
        Topics:[]{Name:str, PartitionIndexes:[]i32},
        CoordinatorEpoch:i32, TransactionVersion:i8 2+
    }
"""

RESPONSE = """
27 WriteTxnMarkers rsp 1-2 f1 |
    Markers:[]{
        ProducerId:i64,
        Topics:[]{Name:str, Partitions:[]{PartitionIndex:i32, ErrorCode:i16}}
    }
"""
