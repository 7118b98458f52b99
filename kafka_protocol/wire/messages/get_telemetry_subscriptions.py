"""GetTelemetrySubscriptions (key 71): the schemas of all versions."""

REQUEST = """
71 GetTelemetrySubscriptions req 0 f0 | ClientInstanceId:uuid
"""

RESPONSE = """
71 GetTelemetrySubscriptions rsp 0 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16, ClientInstanceId:uuid, SubscriptionId:i32,
    AcceptedCompressionTypes:[]i8, PushIntervalMs:i32, TelemetryMaxBytes:i32,
    DeltaTemporality:bool, RequestedMetrics:[]str
"""
