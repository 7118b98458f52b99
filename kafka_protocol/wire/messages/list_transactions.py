"""ListTransactions (key 66): the schemas of all versions."""

REQUEST = """
66 ListTransactions req 0-2 f0 groups |
    StateFilters:[]str, ProducerIdFilters:[]i64, DurationFilter:i64=-1 1+,
    TransactionalIdPattern:str?=null 2+
"""

RESPONSE = """
66 ListTransactions rsp 0-2 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16, UnknownStateFilters:[]str,
    TransactionStates:[]{TransactionalId:str, ProducerId:i64, TransactionState:str}
"""
