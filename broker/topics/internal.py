"""The remote log metadata topic, created by the broker before the tier starts.

Neither clients nor auto-creation may create it (`GUARDED_TOPICS`). With a finite retention or with
compaction it would lose the metadata of remote segments, and so the segments.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.config.listeners import TIER_LISTENER
from broker.config.rules import check_replication
from broker.topics.auto_creation import AutoTopicCreation
from kafka_protocol.errors import ErrorCode, TidemarkError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.controller.topic_specs import DEFAULT, Assignment, Config, TopicSpec
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import NO_LEADER, PartitionImage
from runtime.health_reasons import HealthLine, HealthReason

log = logging.getLogger(__name__)

_PARTITIONS: Final = "remote.log.metadata.topic.num.partitions"
_FACTOR: Final = "remote.log.metadata.topic.replication.factor"
_RETENTION: Final = "remote.log.metadata.topic.retention.ms"
_MIN_ISR: Final = "remote.log.metadata.topic.min.isr"

_LATER: Final = frozenset({
    ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
})  # fmt: skip


class InternalTopicError(TidemarkError):
    """The remote log metadata topic cannot be created, so the tier cannot start."""


class TooFewBrokersError(TidemarkError):
    """The metadata topic is made when more brokers serve; the tier waits for it.

    Attributes:
        reason: For health.
    """

    def __init__(self, reason: HealthLine) -> None:
        """Raise it with what health says."""
        super().__init__(reason)
        self.reason = reason


async def ensure_remote_metadata_topic(
    image: MetadataImage,
    creation: AutoTopicCreation,
    settings: Mapping[str, str],
    *,
    prefix: str,
    node_id: int,
    is_alone: bool,
) -> None:
    """Create `__remote_log_metadata` unless it exists, on brokers that have a tier.

    It gets all its replicas at creation: with fewer, the loss of one disk could lose all remote
    metadata.

    Args:
        image: Newest committed image.
        creation: Creates topics.
        settings: The metadata manager's settings, prefix removed, defaults filled in.
        prefix: Of these settings in the configuration, for error messages.
        node_id: Id of this broker, which has a tier.
        is_alone: No other broker can join.

    Raises:
        ConfigError: More replicas than brokers will ever exist; names key, value and brokers.
        TooFewBrokersError: Too few brokers with a tier serve now; try again.
        InternalTopicError: It cannot be created for another reason.
        KafkaError: The active controller could not be reached, or did not answer; try again.
    """
    existing = image.topics_by_name.get(REMOTE_LOG_METADATA_TOPIC)
    partitions, factor = int(settings[_PARTITIONS]), int(settings[_FACTOR])
    if existing is not None:
        if len(existing.partitions) != partitions:
            log.warning(
                "%s%s=%d has no effect: %s exists with %d partitions",
                prefix,
                _PARTITIONS,
                partitions,
                REMOTE_LOG_METADATA_TOPIC,
                len(existing.partitions),
            )
        _warn_of_deletion(image.topic_config(REMOTE_LOG_METADATA_TOPIC), settings)
        return
    with_tier = sorted(one.id for one in image.brokers.values() if one.remote_store is not None)
    if is_alone or not with_tier:
        check_replication(prefix + _FACTOR, factor, with_tier or [node_id])
    serving = [one for one in with_tier if image.brokers[one].is_active]
    if with_tier and len(serving) < factor:
        raise TooFewBrokersError(
            HealthReason.TOO_FEW_BROKERS.line(
                topic=REMOTE_LOG_METADATA_TOPIC,
                key=prefix + _FACTOR,
                factor=factor,
                count=len(serving),
                serving=_shown(serving) or "none",
            )
        )
    # Controllers of Apache Kafka do not know which brokers have a tier, and could choose any.
    here = [] if with_tier else [Assignment(index, (node_id,)) for index in range(partitions)]
    configs = {
        **_what_is_kept(settings),
        "remote.storage.enable": "false",
        "min.insync.replicas": settings[_MIN_ISR],
    }
    spec = TopicSpec(
        REMOTE_LOG_METADATA_TOPIC,
        num_partitions=DEFAULT if here else partitions,
        replication_factor=DEFAULT if here else factor,
        assignments=tuple(here),
        configs=tuple(Config(name, value) for name, value in configs.items()),
    )
    for error in (await creation.create([spec])).values():
        if error.code in _LATER:
            raise error
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # created by another broker meanwhile
            raise InternalTopicError(f"{REMOTE_LOG_METADATA_TOPIC} cannot be made: {error}")


def _what_is_kept(settings: Mapping[str, str]) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": settings[_RETENTION],
        "retention.bytes": "-1",
    }


def _warn_of_deletion(found: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Warn if the topic's settings delete records, because another client made or altered it."""
    for key, wanted in _what_is_kept(settings).items():
        there = found.get(key, wanted)
        if there not in (wanted, "-1"):
            log.warning(
                "%s may forget remote segments: %s=%s, should be %s; set it by kafka-configs.sh",
                REMOTE_LOG_METADATA_TOPIC,
                key,
                there,
                wanted,
            )


def remote_metadata_problems(image: MetadataImage, node_id: int) -> Sequence[HealthLine]:
    """Why this broker's tier does not reach partitions of the topic.

    Either all replicas are offline, or the leader has no listener for tiers: a broker of Apache
    Kafka, or one whose tier is off.
    """
    topic = image.topics_by_name.get(REMOTE_LOG_METADATA_TOPIC)
    if topic is None:
        return ()
    away, closed = defaultdict(list), defaultdict(list)
    for index, partition in topic.partitions.items():
        leader = image.brokers.get(partition.leader)
        if partition.leader == NO_LEADER:
            away[tuple(partition.replicas)].append(index)
        elif leader is not None and leader.id != node_id and not leader.endpoint(TIER_LISTENER):
            closed[leader.id].append(index)
    return [
        *(
            HealthReason.METADATA_WITHOUT_LEADER.line(
                topic=topic.name, partitions=_shown(indexes), brokers=_shown(replicas)
            )
            for replicas, indexes in away.items()
        ),
        *(
            HealthReason.METADATA_LED_ELSEWHERE.line(
                topic=topic.name, partitions=_shown(indexes), leader=leader
            )
            for leader, indexes in closed.items()
        ),
    ]


def remote_metadata_notes(image: MetadataImage) -> Sequence[str]:
    """Health note on partitions with a single replica, in a cluster of several brokers."""
    topic = image.topics_by_name.get(REMOTE_LOG_METADATA_TOPIC)
    if topic is None or len(image.brokers) < 2:
        return ()
    only = [one for one in topic.partitions.values() if len(one.replicas) == 1]
    if not only:
        return ()
    return (
        f"{topic.name} has one replica in {len(only)} partitions, on broker {_places(only)}: while "
        "it is away the tiers of all brokers wait, and if its disk is lost the list of what is in "
        "the store is lost",
    )


def _places(partitions: Iterable[PartitionImage]) -> str:
    return _shown({broker for one in partitions for broker in one.replicas})


def _shown(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
