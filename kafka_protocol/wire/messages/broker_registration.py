"""BrokerRegistration (key 62): the schemas of all versions."""

REQUEST = """
62 BrokerRegistration req 0-4 f0 few |
    BrokerId:i32, ClusterId:str, IncarnationId:uuid,
    Listeners:[]{Name:str, Host:str, Port:u16, SecurityProtocol:i16},
    Features:[]{Name:str, MinSupportedVersion:i16, MaxSupportedVersion:i16},
    Rack:str?, IsMigratingZkBroker:bool 1+, LogDirs:[]uuid 2+, PreviousBrokerEpoch:i64=-1 3+,
    KeepsDirectories:i8@10000=0, FreeDescriptors:i32@10001=-1,
    Replicas:[]{TopicId:uuid, Partition:i32, DirectoryId:uuid, Refused:bool}@10002,
    IsMissingDirectory:i8@10003=0,
    RemoteStoreClass:str?@10004=null, RemoteStorePlace:bytes?@10005=null
"""

RESPONSE = """
62 BrokerRegistration rsp 0-4 f0 | ThrottleTimeMs:i32, ErrorCode:i16, BrokerEpoch:i64=-1
"""
