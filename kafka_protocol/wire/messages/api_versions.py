"""ApiVersions (key 18): the schemas of all versions."""

REQUEST = """
18 ApiVersions req 0-4 f3 | ClientSoftwareName:str 3+, ClientSoftwareVersion:str 3+
"""

RESPONSE = """
18 ApiVersions rsp 0-4 f3 |
    ErrorCode:i16,
    ApiKeys:[]{ApiKey:i16, MinVersion:i16, MaxVersion:i16},
    ThrottleTimeMs:i32 1+,
    SupportedFeatures:[]{Name:str, MinVersion:i16, MaxVersion:i16}@0 3+,
    FinalizedFeaturesEpoch:i64@1=-1 3+,
    FinalizedFeatures:[]{Name:str, MaxVersionLevel:i16, MinVersionLevel:i16}@2 3+,
    ZkMigrationReady:bool@3 3+
"""
