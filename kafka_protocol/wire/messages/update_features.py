"""UpdateFeatures (key 57): the schemas of all versions."""

REQUEST = """
57 UpdateFeatures req 0-2 f0 few |
    timeoutMs:i32=60000,
    FeatureUpdates:[]{
        Feature:str, MaxVersionLevel:i16, AllowDowngrade:bool 0, UpgradeType:i8=1 1+
    },
    ValidateOnly:bool 1+
"""

RESPONSE = """
57 UpdateFeatures rsp 0-2 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str?,
    Results:[]{Feature:str, ErrorCode:i16, ErrorMessage:str?} 0-1
"""
