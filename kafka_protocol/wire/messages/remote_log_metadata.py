"""Records of `__remote_log_metadata`; the number in front is the api key of the envelope."""

RECORDS = (
    """
0 RemoteLogSegmentMetadataRecord 0 f0 |
    RemoteLogSegmentId:{TopicIdPartition:{Name:str, Id:uuid, Partition:i32}, Id:uuid},
    StartOffset:i64, EndOffset:i64, BrokerId:i32, MaxTimestampMs:i64, EventTimestampMs:i64,
    SegmentLeaderEpochs:[]{LeaderEpoch:i32, Offset:i64},
    SegmentSizeInBytes:i32, CustomMetadata:bytes?=null, RemoteLogSegmentState:i8,
    TxnIndexEmpty:bool@0
""",
    """
1 RemoteLogSegmentMetadataUpdateRecord 0 f0 |
    RemoteLogSegmentId:{TopicIdPartition:{Name:str, Id:uuid, Partition:i32}, Id:uuid},
    BrokerId:i32, EventTimestampMs:i64, CustomMetadata:bytes?=null, RemoteLogSegmentState:i8
""",
    """
2 RemotePartitionDeleteMetadataRecord 0 f0 |
    TopicIdPartition:{Name:str, Id:uuid, Partition:i32},
    BrokerId:i32, EventTimestampMs:i64, RemotePartitionDeleteState:i8
""",
    """
3 RemoteLogSegmentMetadataSnapshotRecord 0 f0 |
    SegmentId:uuid, StartOffset:i64, EndOffset:i64, BrokerId:i32, MaxTimestampMs:i64,
    EventTimestampMs:i64,
    SegmentLeaderEpochs:[]{LeaderEpoch:i32, Offset:i64},
    SegmentSizeInBytes:i32, CustomMetadata:bytes?=null, RemoteLogSegmentState:i8,
    TxnIndexEmpty:bool@0
""",
)
