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


class InvalidUpdateVersionError(ControllerError):
    """A partition has changed since its leader looked."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class IneligibleReplicaError(ControllerError):
    """A proposed ISR member is absent, stops, or is another incarnation than the leader knows."""

    code = ErrorCode.INELIGIBLE_REPLICA


class StaleBrokerEpochError(ControllerError):
    """An older incarnation of a broker speaks."""

    code = ErrorCode.STALE_BROKER_EPOCH


class BrokerIdNotRegisteredError(ControllerError):
    """No broker has this id."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class DuplicateBrokerRegistrationError(ControllerError):
    """Another live process has this broker id."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class UnwrittenDecisionError(ControllerError):
    """The log could not take the change now; it is not carried out, and may be asked for again."""

    code = ErrorCode.NOT_CONTROLLER


class NewLeaderElectedError(ControllerError):
    """The change was carried out, and another broker leads by it."""

    code = ErrorCode.NEW_LEADER_ELECTED


class NotControllerError(ControllerError):
    """This node is not the active controller, or ceased to be it before the change was committed.

    After the latter nobody knows whether the change will be carried out: another controller may
    find its records in the log, or not.
    """

    code = ErrorCode.NOT_CONTROLLER


class ControllerOverloadedError(ControllerError):
    """So many changes wait already that this one was not taken.

    The code is the one that every client of Kafka tries again after, whatever it asked for.
    """

    code = ErrorCode.NOT_CONTROLLER


class InconsistentClusterIdError(ControllerError):
    """A node of another cluster speaks."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class InvalidRegistrationError(ControllerError):
    """A registration that cannot be: directories that are missing, repeated or another's."""

    code = ErrorCode.INVALID_REGISTRATION


class UnsupportedFeatureError(ControllerError):
    """A node that cannot do a finalised level of a feature."""

    code = ErrorCode.UNSUPPORTED_VERSION
