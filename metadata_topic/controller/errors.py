"""What the controller refuses, as errors with their facts."""

from kafka_protocol.errors import ErrorCode, KafkaError


class ControllerError(KafkaError):
    """A refusal whose message says everything a client needs."""

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
    """The number of partitions is not one."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(ControllerError):
    """The replication factor is not one, or too few brokers are there."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(ControllerError):
    """A manual assignment that cannot be."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfigError(ControllerError):
    """A config value that is not allowed."""

    code = ErrorCode.INVALID_CONFIG


class InvalidRequestError(ControllerError):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class PolicyViolationError(ControllerError):
    """More than the cluster lets anybody ask for."""

    code = ErrorCode.POLICY_VIOLATION


class FencedLeaderEpochError(ControllerError):
    """Somebody else leads the partition, or under another leader epoch."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class StaleBrokerEpochError(ControllerError):
    """An older life of a broker speaks."""

    code = ErrorCode.STALE_BROKER_EPOCH


class BrokerIdNotRegisteredError(ControllerError):
    """No broker has this id."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class DuplicateBrokerRegistrationError(ControllerError):
    """Another live process has this broker id."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
