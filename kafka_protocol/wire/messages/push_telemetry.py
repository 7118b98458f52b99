"""PushTelemetry (key 72): the schemas of all versions."""

REQUEST = """
72 PushTelemetry req 0 f0 |
    ClientInstanceId:uuid, SubscriptionId:i32, Terminating:bool, CompressionType:i8,
    Metrics:bytes
"""

RESPONSE = """
72 PushTelemetry rsp 0 f0 | ThrottleTimeMs:i32, ErrorCode:i16
"""
