"""InitProducerId (key 22): the schemas of all versions."""

REQUEST = """
22 InitProducerId req 0-6 f2 |
    TransactionalId:str?, TransactionTimeoutMs:i32, ProducerId:i64=-1 3+,
    ProducerEpoch:i16=-1 3+, Enable2Pc:bool 6+, KeepPreparedTxn:bool 6+
"""

RESPONSE = """
22 InitProducerId rsp 0-6 f2 |
    ThrottleTimeMs:i32, ErrorCode:i16, ProducerId:i64=-1, ProducerEpoch:i16,
    OngoingTxnProducerId:i64=-1 6+, OngoingTxnProducerEpoch:i16=-1 6+
"""
