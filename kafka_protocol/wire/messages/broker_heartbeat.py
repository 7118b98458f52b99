"""BrokerHeartbeat (key 63): the schemas of all versions."""

REQUEST = """
63 BrokerHeartbeat req 0-2 f0 few |
    BrokerId:i32, BrokerEpoch:i64=-1, CurrentMetadataOffset:i64, WantFence:bool,
    WantShutDown:bool, OfflineLogDirs:[]uuid@0 1+, CordonedLogDirs:[]uuid?@1=null 2+,
    FreeDescriptors:i32@10001=-1
"""

RESPONSE = """
63 BrokerHeartbeat rsp 0-2 f0 |
    ThrottleTimeMs:i32, ErrorCode:i16, IsCaughtUp:bool, IsFenced:bool=true, ShouldShutDown:bool
"""
