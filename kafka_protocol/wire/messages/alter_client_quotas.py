"""AlterClientQuotas (key 49): the schemas of all versions."""

REQUEST = """
49 AlterClientQuotas req 0-1 f1 rules |
    Entries:[]{
        Entity:[]{EntityType:str, EntityName:str?},
        Ops:[]{Key:str, Value:f64, Remove:bool}
    },
    ValidateOnly:bool
"""

RESPONSE = """
49 AlterClientQuotas rsp 0-1 f1 |
    ThrottleTimeMs:i32,
    Entries:[]{ErrorCode:i16, ErrorMessage:str?, Entity:[]{EntityType:str, EntityName:str?}}
"""
