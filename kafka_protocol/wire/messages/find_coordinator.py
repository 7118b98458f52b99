"""FindCoordinator (key 10): the schemas of all versions."""

REQUEST = """
10 FindCoordinator req 0-6 f3 groups | Key:str 0-3, KeyType:i8 1+, CoordinatorKeys:[]str 4+
"""

RESPONSE = """
10 FindCoordinator rsp 0-6 f3 |
    ThrottleTimeMs:i32 1+, ErrorCode:i16 0-3, ErrorMessage:str? 1-3, NodeId:i32 0-3,
    Host:str 0-3, Port:i32 0-3,
    Coordinators:[]{
        Key:str, NodeId:i32, Host:str, Port:i32, ErrorCode:i16, ErrorMessage:str?
    } 4+
"""

MIRRORED = "coordinator_keys>coordinators - >key 4+"
