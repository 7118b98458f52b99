"""What a client may be told about a partition that cannot do what was asked."""

from kafka_protocol.errors import ErrorCode, KafkaError
from local_log.errors import KafkaStorageError


class UnknownTopicOrPartition(KafkaError):
    """No such topic, or it has no such partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class NotLeaderOrFollower(KafkaError):
    """Another broker leads this partition; perhaps no replica of it is here."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class NotValidated(KafkaStorageError):
    """The remote tier has not found this log sound, or has found a loss: what it lacks may exist.

    An answer that says so is kept back for a while: clients ask again at once.
    """


class OffsetNotAvailable(KafkaError):
    """The tier has not reported yet what it holds; clients ask again."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class ReplicaNotAvailable(KafkaError):
    """The replica is here and cannot answer yet; clients ask again."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class FencedLeaderEpoch(KafkaError):
    """The client's metadata is older than ours."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(KafkaError):
    """The client knows a newer leader epoch than we do."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicas(KafkaError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(KafkaError):
    """The records were appended, and fewer replicas are in sync than must have them."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class NotCommittedInTime(KafkaError):
    """The time of a request is over before its records were committed."""

    code = ErrorCode.REQUEST_TIMED_OUT
