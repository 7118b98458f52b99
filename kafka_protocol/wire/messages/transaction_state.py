"""Records of `__transaction_state`."""

RECORDS = (
    "0 TransactionLogKey 0 f- | TransactionalId:str",
    """
0 TransactionLogValue 0-1 f1 |
    ProducerId:i64, PreviousProducerId:i64@0=-1 1+, NextProducerId:i64@1=-1 1+,
    ProducerEpoch:i16, NextProducerEpoch:i16@3=-1 1+, TransactionTimeoutMs:i32,
    TransactionStatus:i8,
    TransactionPartitions:[]{Topic:str, PartitionIds:[]i32}?,
    TransactionLastUpdateTimestampMs:i64, TransactionStartTimestampMs:i64,
    ClientTransactionVersion:i16@2 1+
""",
)
