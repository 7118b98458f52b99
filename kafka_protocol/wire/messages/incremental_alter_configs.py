"""IncrementalAlterConfigs (key 44): the schemas of all versions."""

REQUEST = """
44 IncrementalAlterConfigs req 0-1 f1 settings |
    Resources:[]{
        ResourceType:i8, ResourceName:str,
        Configs:[]{Name:str, ConfigOperation:i8, Value:str?}
    },
    ValidateOnly:bool
"""

RESPONSE = """
44 IncrementalAlterConfigs rsp 0-1 f1 |
    ThrottleTimeMs:i32,
    Responses:[]{ErrorCode:i16, ErrorMessage:str?, ResourceType:i8, ResourceName:str}
"""

MIRRORED = "resources>responses resource resource_type,resource_name"
