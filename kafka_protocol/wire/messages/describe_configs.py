"""DescribeConfigs (key 32): the schemas of all versions."""

REQUEST = """
32 DescribeConfigs req 1-4 f4 settings |
    Resources:[]{ResourceType:i8, ResourceName:str, ConfigurationKeys:[]str?},
    IncludeSynonyms:bool, IncludeDocumentation:bool 3+
"""

RESPONSE = """
32 DescribeConfigs rsp 1-4 f4 |
    ThrottleTimeMs:i32,
    Results:[]{
        ErrorCode:i16, ErrorMessage:str?, ResourceType:i8, ResourceName:str,
        Configs:[]{
            Name:str, Value:str?, ReadOnly:bool, ConfigSource:i8=-1, IsSensitive:bool,
            Synonyms:[]{Name:str, Value:str?, Source:i8},
            ConfigType:i8 3+, Documentation:str? 3+
        }
    }
"""

MIRRORED = "resources>results resource resource_type,resource_name"
