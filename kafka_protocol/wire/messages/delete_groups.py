"""DeleteGroups (key 42): the schemas of all versions."""

REQUEST = """
42 DeleteGroups req 0-2 f2 groups | GroupsNames:[]str
"""

RESPONSE = """
42 DeleteGroups rsp 0-2 f2 | ThrottleTimeMs:i32, Results:[]{GroupId:str, ErrorCode:i16}
"""

MIRRORED = "groups_names>results - >group_id"
