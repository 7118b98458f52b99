"""EndTxn (key 26): the schemas of all versions."""

REQUEST = """
26 EndTxn req 0-5 f3 | TransactionalId:str, ProducerId:i64, ProducerEpoch:i16, Committed:bool
"""

RESPONSE = """
26 EndTxn rsp 0-5 f3 |
    ThrottleTimeMs:i32, ErrorCode:i16, ProducerId:i64=-1 5+, ProducerEpoch:i16=-1 5+
"""
