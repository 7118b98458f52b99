"""AlterConfigs (key 33): the schemas of all versions."""

REQUEST = """
33 AlterConfigs req 0-2 f2 settings |
    Resources:[]{ResourceType:i8, ResourceName:str, Configs:[]{Name:str, Value:str?}},
    ValidateOnly:bool
"""

RESPONSE = """
33 AlterConfigs rsp 0-2 f2 |
    ThrottleTimeMs:i32,
    Responses:[]{ErrorCode:i16, ErrorMessage:str?, ResourceType:i8, ResourceName:str}
"""

MIRRORED = "resources>responses resource resource_type,resource_name"
