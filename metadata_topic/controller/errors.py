"""Errors of the controller's decisions, with the codes that clients get."""

from kafka_protocol.errors import ErrorCode, KafkaError


class ControllerError(KafkaError):
    """A refusal; its message goes to the client."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class InvalidTopicError(ControllerError):
    """The name is not allowed, or collides with another topic's metric name."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicExistsError(ControllerError):
    """A topic of this name is there already."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class UnknownTopicError(ControllerError):
    """No topic has this name."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class InvalidPartitionsError(ControllerError):
    """The partition count is invalid, or no increase."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(ControllerError):
    """The replication factor is invalid, or exceeds the brokers available."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(ControllerError):
    """A manual assignment is invalid."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfigError(ControllerError):
    """A config value is not allowed."""

    code = ErrorCode.INVALID_CONFIG


class InvalidRequestError(ControllerError):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class PolicyViolationError(ControllerError):
    """The request exceeds a limit of the cluster."""

    code = ErrorCode.POLICY_VIOLATION


class FencedLeaderEpochError(ControllerError):
    """The caller does not lead the partition under the current leader epoch."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class InvalidUpdateVersionError(ControllerError):
    """The partition or feature changed since the caller read it."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class IneligibleReplicaError(ControllerError):
    """A member of a proposed ISR is absent, stopping, or another incarnation."""

    code = ErrorCode.INELIGIBLE_REPLICA


class StaleBrokerEpochError(ControllerError):
    """The request comes from an older incarnation of a broker."""

    code = ErrorCode.STALE_BROKER_EPOCH


class BrokerIdNotRegisteredError(ControllerError):
    """No broker has this id."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class DuplicateBrokerRegistrationError(ControllerError):
    """Another live process has this broker id."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class UnwrittenDecisionError(ControllerError):
    """The log cannot take the records now; nothing was written, and the caller may retry."""

    code = ErrorCode.NOT_CONTROLLER


class NewLeaderElectedError(ControllerError):
    """The change was written; by it another broker leads."""

    code = ErrorCode.NEW_LEADER_ELECTED


class NotControllerError(ControllerError):
    """This node is not the active controller, or ceased to be it before the commit.

    In the second case the outcome is open: the next controller may find the records in its log, or
    not.
    """

    code = ErrorCode.NOT_CONTROLLER


class ControllerOverloadedError(ControllerError):
    """Refused because too many decisions are pending.

    All Kafka clients retry after this code, for any request.
    """

    code = ErrorCode.NOT_CONTROLLER


class InconsistentClusterIdError(ControllerError):
    """The request comes from a node of another cluster."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class InvalidRegistrationError(ControllerError):
    """Directories of a registration are missing, repeated or registered by another broker."""

    code = ErrorCode.INVALID_REGISTRATION


class UnsupportedFeatureError(ControllerError):
    """A node does not support the finalised level of a feature."""

    code = ErrorCode.UNSUPPORTED_VERSION
