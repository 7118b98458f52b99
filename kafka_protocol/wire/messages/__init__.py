"""Schemas of Kafka's messages as text: one module an API, one a family of records.

Nothing here is parsed or imported before a message is asked for (`kafka_protocol.wire.codec`). A
module of an API has its schemas (`kafka_protocol.wire.schema`). Its `MIRRORED` has the lists that
an answer mirrors, element for element. It has a line for each outermost list (a version has one at
most), with ` / ` before the list in its elements. A list has these columns:

    asked>answered  attributes of the list in the request and in the answer; one if they are equal
    kind            of what its elements name: `topic`, `partition`, `resource`, or `-`
    keys            attributes that identify the element, `asked>answered`. Nothing before `>` is
                    the element itself, a plain name or number; `-`: the order identifies it
    0-7  8+         versions, when not all

`also` begins a last line of what else holds, by the attributes of `broker.testing.faults.shapes`.
"""

FAMILIES = {
    "RequestHeader": "headers",
    "ResponseHeader": "headers",
    "ConsumerProtocolAssignment": "embedded",
    "ConsumerProtocolSubscription": "embedded",
    "DefaultPrincipalData": "embedded",
    "EndTxnMarker": "control_records",
    "KRaftVersionRecord": "control_records",
    "LeaderChangeMessage": "control_records",
    "SnapshotFooterRecord": "control_records",
    "SnapshotHeaderRecord": "control_records",
    "VotersRecord": "control_records",
    "RegisterBrokerRecord": "cluster_metadata",
    "UnregisterBrokerRecord": "cluster_metadata",
    "TopicRecord": "cluster_metadata",
    "PartitionRecord": "cluster_metadata",
    "ConfigRecord": "cluster_metadata",
    "PartitionChangeRecord": "cluster_metadata",
    "FenceBrokerRecord": "cluster_metadata",
    "UnfenceBrokerRecord": "cluster_metadata",
    "RemoveTopicRecord": "cluster_metadata",
    "DelegationTokenRecord": "cluster_metadata",
    "UserScramCredentialRecord": "cluster_metadata",
    "FeatureLevelRecord": "cluster_metadata",
    "ClientQuotaRecord": "cluster_metadata",
    "ProducerIdsRecord": "cluster_metadata",
    "BrokerRegistrationChangeRecord": "cluster_metadata",
    "AccessControlEntryRecord": "cluster_metadata",
    "RemoveAccessControlEntryRecord": "cluster_metadata",
    "NoOpRecord": "cluster_metadata",
    "ZkMigrationStateRecord": "cluster_metadata",
    "RemoveUserScramCredentialRecord": "cluster_metadata",
    "BeginTransactionRecord": "cluster_metadata",
    "EndTransactionRecord": "cluster_metadata",
    "AbortTransactionRecord": "cluster_metadata",
    "RemoveDelegationTokenRecord": "cluster_metadata",
    "RegisterControllerRecord": "cluster_metadata",
    "ClearElrRecord": "cluster_metadata",
    "RemoteLogSegmentMetadataRecord": "remote_log_metadata",
    "RemoteLogSegmentMetadataUpdateRecord": "remote_log_metadata",
    "RemotePartitionDeleteMetadataRecord": "remote_log_metadata",
    "RemoteLogSegmentMetadataSnapshotRecord": "remote_log_metadata",
    "LegacyOffsetCommitKey": "consumer_offsets",
    "LegacyOffsetCommitValue": "consumer_offsets",
    "OffsetCommitKey": "consumer_offsets",
    "OffsetCommitValue": "consumer_offsets",
    "GroupMetadataKey": "consumer_offsets",
    "GroupMetadataValue": "consumer_offsets",
    "ConsumerGroupMetadataKey": "consumer_offsets",
    "ConsumerGroupMetadataValue": "consumer_offsets",
    "ConsumerGroupPartitionMetadataKey": "consumer_offsets",
    "ConsumerGroupPartitionMetadataValue": "consumer_offsets",
    "ConsumerGroupMemberMetadataKey": "consumer_offsets",
    "ConsumerGroupMemberMetadataValue": "consumer_offsets",
    "ConsumerGroupTargetAssignmentMetadataKey": "consumer_offsets",
    "ConsumerGroupTargetAssignmentMetadataValue": "consumer_offsets",
    "ConsumerGroupTargetAssignmentMemberKey": "consumer_offsets",
    "ConsumerGroupTargetAssignmentMemberValue": "consumer_offsets",
    "ConsumerGroupCurrentMemberAssignmentKey": "consumer_offsets",
    "ConsumerGroupCurrentMemberAssignmentValue": "consumer_offsets",
    "ConsumerGroupRegularExpressionKey": "consumer_offsets",
    "ConsumerGroupRegularExpressionValue": "consumer_offsets",
    "TransactionLogKey": "transaction_state",
    "TransactionLogValue": "transaction_state",
    "ProducerSnapshot": "local_files",
    "QuorumStateData": "local_files",
}
"""Which module holds a record's schema. An API's is called as its `ApiKey`, in lower case."""
