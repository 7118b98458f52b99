"""ExpireDelegationToken (key 40): the schemas of all versions."""

REQUEST = """
40 ExpireDelegationToken req 1-2 f2 | Hmac:bytes, ExpiryTimePeriodMs:i64
"""

RESPONSE = """
40 ExpireDelegationToken rsp 1-2 f2 | ErrorCode:i16, ExpiryTimestampMs:i64, ThrottleTimeMs:i32
"""
