"""DescribeTransactions (key 65): the schemas of all versions."""

REQUEST = """
65 DescribeTransactions req 0 f0 groups | TransactionalIds:[]str
"""

RESPONSE = """
65 DescribeTransactions rsp 0 f0 |
    ThrottleTimeMs:i32,
    TransactionStates:[]{
        ErrorCode:i16, TransactionalId:str, TransactionState:str, TransactionTimeoutMs:i32,
        TransactionStartTimeMs:i64, ProducerId:i64, ProducerEpoch:i16,
        Topics:[]{Topic:str, Partitions:[]i32}
    }
"""
