"""Errors of a partition that cannot serve a request, each with the Kafka code of its answer."""

from kafka_protocol.errors import ErrorCode, KafkaError
from local_log.errors import KafkaStorageError


class UnknownTopicOrPartition(KafkaError):
    """No such topic, or it has no such partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class NotLeaderOrFollower(KafkaError):
    """Another broker leads this partition; perhaps no replica of it is here."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class NotValidated(KafkaStorageError):
    """The remote tier has not validated this log, or has found a loss.

    Records above its log end may exist, so the answer is delayed: clients ask again at once.
    """


class OffsetNotAvailable(KafkaError):
    """The tier has not reported yet up to where it holds the log; clients ask again."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class ReplicaNotAvailable(KafkaError):
    """The replica is here and cannot answer yet; clients ask again."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class FencedLeaderEpoch(KafkaError):
    """The leader epoch of the request is older than this broker's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(KafkaError):
    """The leader epoch of the request is newer than this broker's."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicas(KafkaError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(KafkaError):
    """The records were appended, but fewer replicas are in sync than `min.insync.replicas`."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class NotCommittedInTime(KafkaError):
    """The timeout of a request ended before its records were committed."""

    code = ErrorCode.REQUEST_TIMED_OUT
