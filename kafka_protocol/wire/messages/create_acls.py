"""CreateAcls (key 30): the schemas of all versions."""

REQUEST = """
30 CreateAcls req 1-3 f2 rules |
    Creations:[]{
        ResourceType:i8, ResourceName:str, ResourcePatternType:i8=3, Principal:str, Host:str,
        Operation:i8, PermissionType:i8
    }
"""

RESPONSE = """
30 CreateAcls rsp 1-3 f2 | ThrottleTimeMs:i32, Results:[]{ErrorCode:i16, ErrorMessage:str?}
"""

MIRRORED = "creations>results - -"
