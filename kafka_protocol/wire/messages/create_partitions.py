"""CreatePartitions (key 37): the schemas of all versions."""

REQUEST = """
37 CreatePartitions req 0-3 f2 made |
    Topics:[]{Name:str, Count:i32, Assignments:[]{BrokerIds:[]i32}?},
    TimeoutMs:i32, ValidateOnly:bool
"""

RESPONSE = """
37 CreatePartitions rsp 0-3 f2 |
    ThrottleTimeMs:i32,
    Results:[]{Name:str, ErrorCode:i16, ErrorMessage:str?=null}
"""

MIRRORED = "topics>results topic name"
