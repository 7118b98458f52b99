"""DescribeAcls (key 29): the schemas of all versions."""

REQUEST = """
29 DescribeAcls req 1-3 f2 |
    ResourceTypeFilter:i8, ResourceNameFilter:str?, PatternTypeFilter:i8=3,
    PrincipalFilter:str?, HostFilter:str?, Operation:i8, PermissionType:i8
"""

RESPONSE = """
29 DescribeAcls rsp 1-3 f2 |
    ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?,
    Resources:[]{
        ResourceType:i8, ResourceName:str, PatternType:i8=3,
        Acls:[]{Principal:str, Host:str, Operation:i8, PermissionType:i8}
    }
"""
