"""CreateDelegationToken (key 38): the schemas of all versions."""

REQUEST = """
38 CreateDelegationToken req 1-3 f2 few |
    OwnerPrincipalType:str? 3+, OwnerPrincipalName:str? 3+,
    Renewers:[]{PrincipalType:str, PrincipalName:str},
    MaxLifetimeMs:i64
"""

RESPONSE = """
38 CreateDelegationToken rsp 1-3 f2 |
    ErrorCode:i16, PrincipalType:str, PrincipalName:str, TokenRequesterPrincipalType:str 3+,
    TokenRequesterPrincipalName:str 3+, IssueTimestampMs:i64, ExpiryTimestampMs:i64,
    MaxTimestampMs:i64, TokenId:str, Hmac:bytes, ThrottleTimeMs:i32
"""
