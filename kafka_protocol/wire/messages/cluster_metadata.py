"""Records of `__cluster_metadata`; the number in front is the api key of the envelope."""

RECORDS = (
    """
0 RegisterBrokerRecord 0-4 f0 |
    BrokerId:i32, IsMigratingZkBroker:bool 2+, IncarnationId:uuid, BrokerEpoch:i64,
    EndPoints:[]{Name:str, Host:str, Port:u16, SecurityProtocol:i16},
    Features:[]{Name:str, MinSupportedVersion:i16, MaxSupportedVersion:i16},
    Rack:str?, Fenced:bool=true, InControlledShutdown:bool 1+, LogDirs:[]uuid@0 3+,
    CordonedLogDirs:[]uuid?@1=null 4+, DirectoriesAssignedFrom:i64@10010=-1,
    AbsentDirectories:[]{Id:uuid, LastIncarnation:uuid}@10011,
    RemoteStoreClass:str?@10018=null, RemoteStorePlace:bytes?@10019=null
""",
    "1 UnregisterBrokerRecord 0 f0 | BrokerId:i32, BrokerEpoch:i64",
    "2 TopicRecord 0 f0 | Name:str, TopicId:uuid, WasTiered:bool@10012=false",
    """
3 PartitionRecord 0-2 f0 |
    PartitionId:i32=-1, TopicId:uuid, Replicas:[]i32, Isr:[]i32, RemovingReplicas:[]i32,
    AddingReplicas:[]i32, Leader:i32=-1, LeaderRecoveryState:i8@0, LeaderEpoch:i32=-1,
    PartitionEpoch:i32=-1, Directories:[]uuid 1+, EligibleLeaderReplicas:[]i32?@1=null 2+,
    LastKnownElr:[]i32?@2=null 2+, UncleanEpoch:i32@10016=-1
""",
    "4 ConfigRecord 0 f0 | ResourceType:i8, ResourceName:str, Name:str, Value:str?",
    """
5 PartitionChangeRecord 0-2 f0 |
    PartitionId:i32=-1, TopicId:uuid, Isr:[]i32?@0=null, Leader:i32@1=-2,
    Replicas:[]i32?@2=null, RemovingReplicas:[]i32?@3=null, AddingReplicas:[]i32?@4=null,
    LeaderRecoveryState:i8@5=-1, Directories:[]uuid?@8=null 1+,
    EligibleLeaderReplicas:[]i32?@6=null 2+, LastKnownElr:[]i32?@7=null 2+
""",
    "7 FenceBrokerRecord 0 f0 | Id:i32, Epoch:i64",
    "8 UnfenceBrokerRecord 0 f0 | Id:i32, Epoch:i64",
    "9 RemoveTopicRecord 0 f0 | TopicId:uuid",
    """
10 DelegationTokenRecord 0 f0 |
    Owner:str, Requester:str, Renewers:[]str, IssueTimestamp:i64, MaxTimestamp:i64,
    ExpirationTimestamp:i64, TokenId:str
""",
    """
11 UserScramCredentialRecord 0 f0 |
    Name:str, Mechanism:i8, Salt:bytes, StoredKey:bytes, ServerKey:bytes, Iterations:i32
""",
    "12 FeatureLevelRecord 0 f0 | Name:str, FeatureLevel:i16",
    """
14 ClientQuotaRecord 0 f0 |
    Entity:[]{EntityType:str, EntityName:str?},
    Key:str, Value:f64, Remove:bool
""",
    "15 ProducerIdsRecord 0 f0 | BrokerId:i32, BrokerEpoch:i64=-1, NextProducerId:i64",
    """
17 BrokerRegistrationChangeRecord 0-3 f0 |
    BrokerId:i32, BrokerEpoch:i64, Fenced:i8@0, InControlledShutdown:i8@1 1+,
    LogDirs:[]uuid@2 2+, CordonedLogDirs:[]uuid?@3=null 3+
""",
    """
18 AccessControlEntryRecord 0 f0 |
    Id:uuid, ResourceType:i8, ResourceName:str, PatternType:i8, Principal:str, Host:str,
    Operation:i8, PermissionType:i8
""",
    "19 RemoveAccessControlEntryRecord 0 f0 | Id:uuid",
    """
20 NoOpRecord 0 f0 |
    RemovedTieredTopics:[]uuid@10013, EmptiedTieredTopics:[]uuid@10014
""",
    "21 ZkMigrationStateRecord 0 f0 | ZkMigrationState:i8",
    "22 RemoveUserScramCredentialRecord 0 f0 | Name:str, Mechanism:i8",
    "23 BeginTransactionRecord 0 f0 | Name:str?@0=null",
    "24 EndTransactionRecord 0 f0 |",
    "25 AbortTransactionRecord 0 f0 | Reason:str?@0=null",
    "26 RemoveDelegationTokenRecord 0 f0 | TokenId:str",
    """
27 RegisterControllerRecord 0 f0 |
    ControllerId:i32, IncarnationId:uuid, ZkMigrationReady:bool,
    EndPoints:[]{Name:str, Host:str, Port:u16, SecurityProtocol:i16},
    Features:[]{Name:str, MinSupportedVersion:i16, MaxSupportedVersion:i16}
""",
    "28 ClearElrRecord 0 f0 | TopicName:str",
)
