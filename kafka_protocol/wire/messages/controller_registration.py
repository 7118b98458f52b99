"""ControllerRegistration (key 70): the schemas of all versions."""

REQUEST = """
70 ControllerRegistration req 0 f0 few |
    ControllerId:i32, IncarnationId:uuid, ZkMigrationReady:bool,
    Listeners:[]{Name:str, Host:str, Port:u16, SecurityProtocol:i16},
    Features:[]{Name:str, MinSupportedVersion:i16, MaxSupportedVersion:i16}
"""

RESPONSE = """
70 ControllerRegistration rsp 0 f0 | ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?
"""
