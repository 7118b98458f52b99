"""Records of `__consumer_offsets`; the number in front is the type that begins the key."""

RECORDS = (
    "0 LegacyOffsetCommitKey 0 f- | group:str, topic:str, partition:i32",
    "0 LegacyOffsetCommitValue 0 f- | offset:i64, metadata:str, commitTimestamp:i64",
    "1 OffsetCommitKey 0 f- | group:str, topic:str, partition:i32",
    """
1 OffsetCommitValue 0-4 f4 |
    offset:i64, leaderEpoch:i32=-1 3+, metadata:str, commitTimestamp:i64,
    expireTimestamp:i64=-1 1, topicId:uuid@0 4+
""",
    "2 GroupMetadataKey 0 f- | group:str",
    """
2 GroupMetadataValue 0-4 f4 |
    protocolType:str, generation:i32, protocol:str?, leader:str?,
    currentStateTimestamp:i64=-1 2+,
    members:[]{
        memberId:str, groupInstanceId:str?=null 3+, clientId:str, clientHost:str,
        rebalanceTimeout:i32=-1 1+, sessionTimeout:i32, subscription:bytes, assignment:bytes
    }
""",
    "3 ConsumerGroupMetadataKey 0 f- | GroupId:str",
    "3 ConsumerGroupMetadataValue 0 f0 | Epoch:i32, MetadataHash:i64@0",
    "4 ConsumerGroupPartitionMetadataKey 0 f- | GroupId:str",
    """
4 ConsumerGroupPartitionMetadataValue 0 f0 |
    Topics:[]{
        TopicId:uuid, TopicName:str, NumPartitions:i32,
        PartitionMetadata:[]{Partition:i32, Racks:[]str}
    }
""",
    "5 ConsumerGroupMemberMetadataKey 0 f- | GroupId:str, MemberId:str",
    """
5 ConsumerGroupMemberMetadataValue 0 f0 |
    InstanceId:str?, RackId:str?, ClientId:str, ClientHost:str, SubscribedTopicNames:[]str,
    SubscribedTopicRegex:str?, RebalanceTimeoutMs:i32=-1, ServerAssignor:str?,
    ClassicMemberMetadata:{
        SessionTimeoutMs:i32,
        SupportedProtocols:[]{Name:str, Metadata:bytes}
    }?@0
""",
    "6 ConsumerGroupTargetAssignmentMetadataKey 0 f- | GroupId:str",
    """
6 ConsumerGroupTargetAssignmentMetadataValue 0 f0 |
    AssignmentEpoch:i32, AssignmentTimestamp:i64@0
""",
    "7 ConsumerGroupTargetAssignmentMemberKey 0 f- | GroupId:str, MemberId:str",
    """
7 ConsumerGroupTargetAssignmentMemberValue 0 f0 |
    TopicPartitions:[]{TopicId:uuid, Partitions:[]i32}
""",
    "8 ConsumerGroupCurrentMemberAssignmentKey 0 f- | GroupId:str, MemberId:str",
    """
8 ConsumerGroupCurrentMemberAssignmentValue 0 f0 |
    MemberEpoch:i32, PreviousMemberEpoch:i32, State:i8,
    AssignedPartitions:[]{TopicId:uuid, Partitions:[]i32, AssignmentEpochs:[]i32@0},
    PartitionsPendingRevocation:[]{TopicId:uuid, Partitions:[]i32, AssignmentEpochs:[]i32@0}
""",
    "16 ConsumerGroupRegularExpressionKey 0 f- | GroupId:str, RegularExpression:str",
    "16 ConsumerGroupRegularExpressionValue 0 f0 | Topics:[]str, Version:i64, Timestamp:i64",
)
