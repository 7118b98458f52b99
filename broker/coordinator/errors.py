"""Why a coordinator cannot answer for a group; clients look for another, or ask again."""

from kafka_protocol.errors import ErrorCode, KafkaError


class NotCoordinator(KafkaError):
    """Another broker leads the partition of `__consumer_offsets` that has this group."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorLoadInProgress(KafkaError):
    """The partition that has this group is being read."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(KafkaError):
    """Nobody coordinates this group just now: the broker stops, or the topic is missing."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
