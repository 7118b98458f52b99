"""DescribeDelegationToken (key 41): the schemas of all versions."""

REQUEST = """
41 DescribeDelegationToken req 1-3 f2 rules | Owners:[]{PrincipalType:str, PrincipalName:str}?
"""

RESPONSE = """
41 DescribeDelegationToken rsp 1-3 f2 |
    ErrorCode:i16,
    Tokens:[]{
        PrincipalType:str, PrincipalName:str, TokenRequesterPrincipalType:str 3+,
        TokenRequesterPrincipalName:str 3+, IssueTimestamp:i64, ExpiryTimestamp:i64,
        MaxTimestamp:i64, TokenId:str, Hmac:bytes,
        Renewers:[]{PrincipalType:str, PrincipalName:str}
    },
    ThrottleTimeMs:i32
"""
