"""DescribeClientQuotas (key 48): the schemas of all versions."""

REQUEST = """
48 DescribeClientQuotas req 0-1 f1 rules |
    Components:[]{EntityType:str, MatchType:i8, Match:str?},
    Strict:bool
"""

RESPONSE = """
48 DescribeClientQuotas rsp 0-1 f1 |
    ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?,
    Entries:[]{Entity:[]{EntityType:str, EntityName:str?}, Values:[]{Key:str, Value:f64}}?
"""
