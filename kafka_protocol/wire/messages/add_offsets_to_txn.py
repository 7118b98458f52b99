"""AddOffsetsToTxn (key 25): the schemas of all versions."""

REQUEST = """
25 AddOffsetsToTxn req 0-4 f3 |
    TransactionalId:str, ProducerId:i64, ProducerEpoch:i16, GroupId:str
"""

RESPONSE = """
25 AddOffsetsToTxn rsp 0-4 f3 | ThrottleTimeMs:i32, ErrorCode:i16
"""
