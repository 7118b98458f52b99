"""RenewDelegationToken (key 39): the schemas of all versions."""

REQUEST = """
39 RenewDelegationToken req 1-2 f2 | Hmac:bytes, RenewPeriodMs:i64
"""

RESPONSE = """
39 RenewDelegationToken rsp 1-2 f2 | ErrorCode:i16, ExpiryTimestampMs:i64, ThrottleTimeMs:i32
"""
