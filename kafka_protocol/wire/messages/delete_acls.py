"""DeleteAcls (key 31): the schemas of all versions."""

REQUEST = """
31 DeleteAcls req 1-3 f2 rules |
    Filters:[]{
        ResourceTypeFilter:i8, ResourceNameFilter:str?, PatternTypeFilter:i8=3,
        PrincipalFilter:str?, HostFilter:str?, Operation:i8, PermissionType:i8
    }
"""

RESPONSE = """
31 DeleteAcls rsp 1-3 f2 |
    ThrottleTimeMs:i32,
    FilterResults:[]{
        ErrorCode:i16, ErrorMessage:str?,
        MatchingAcls:[]{
            ErrorCode:i16, ErrorMessage:str?, ResourceType:i8, ResourceName:str,
            PatternType:i8=3, Principal:str, Host:str, Operation:i8, PermissionType:i8
        }
    }
"""

MIRRORED = "filters>filter_results - -"
