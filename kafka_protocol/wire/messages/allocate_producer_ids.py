"""AllocateProducerIds (key 67): the schemas of all versions."""

REQUEST = """
67 AllocateProducerIds req 0 f0 | BrokerId:i32, BrokerEpoch:i64=-1,
    UsedProducerId:i64@10000=-1
"""

RESPONSE = """
67 AllocateProducerIds rsp 0 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16, ProducerIdStart:i64, ProducerIdLen:i32
"""
