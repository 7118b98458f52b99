"""SaslAuthenticate (key 36): the schemas of all versions."""

REQUEST = """
36 SaslAuthenticate req 0-2 f2 | AuthBytes:bytes
"""

RESPONSE = """
36 SaslAuthenticate rsp 0-2 f2 |
    ErrorCode:i16, ErrorMessage:str?, AuthBytes:bytes, SessionLifetimeMs:i64 1+
"""
