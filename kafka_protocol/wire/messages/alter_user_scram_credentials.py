"""AlterUserScramCredentials (key 51): the schemas of all versions."""

REQUEST = """
51 AlterUserScramCredentials req 0 f0 rules |
    Deletions:[]{Name:str, Mechanism:i8},
    Upsertions:[]{Name:str, Mechanism:i8, Iterations:i32, Salt:bytes, SaltedPassword:bytes}
"""

RESPONSE = """
51 AlterUserScramCredentials rsp 0 f0 |
    ThrottleTimeMs:i32,
    Results:[]{User:str, ErrorCode:i16, ErrorMessage:str?}
"""
