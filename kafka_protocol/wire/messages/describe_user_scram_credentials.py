"""DescribeUserScramCredentials (key 50): the schemas of all versions."""

REQUEST = """
50 DescribeUserScramCredentials req 0 f0 rules | Users:[]{Name:str}?
"""

RESPONSE = """
50 DescribeUserScramCredentials rsp 0 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?,
    Results:[]{
        User:str, ErrorCode:i16, ErrorMessage:str?,
        CredentialInfos:[]{Mechanism:i8, Iterations:i32}
    }
"""
