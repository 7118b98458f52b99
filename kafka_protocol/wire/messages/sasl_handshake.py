"""SaslHandshake (key 17): the schemas of all versions."""

REQUEST = """
17 SaslHandshake req 0-1 f- | Mechanism:str
"""

RESPONSE = """
17 SaslHandshake rsp 0-1 f- | ErrorCode:i16, Mechanisms:[]str
"""
