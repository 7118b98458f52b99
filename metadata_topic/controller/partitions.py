"""Adding partitions to topics (KIP-195), and the records of any new partition.

Every topic of a request succeeds or fails on its own; the records of all are one batch. A request
for more than PARTITIONS_PER_REQUEST_MAX partitions fails as a whole, before any are built.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kafka_protocol.errors import KafkaError
from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    PolicyViolationError,
    UnknownTopicError,
)
from metadata_topic.controller.free_descriptors import DescriptorBudget
from metadata_topic.controller.placement import place
from metadata_topic.controller.replica_assignment import check_manual
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.tiered_placement import candidates_for, hosts_of
from metadata_topic.image.image import MetadataImage, is_tiered
from metadata_topic.image.model import DIRECTORY_UNASSIGNED, TopicImage
from metadata_topic.image.records import (
    RECORD_WORK,
    MetadataRecord,
    make,
    partition_record_version,
)
from runtime.work import Pace, Steps, stepwise

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
_TOPIC_WORK: Final = 40


class NewReplicas(Protocol):
    """Manual replicas of one new partition, as in the request."""

    @property
    def broker_ids(self) -> Sequence[int]:
        """The leader first."""


class MorePartitions(Protocol):
    """A topic of a CreatePartitions request; the message's structs have this shape."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def count(self) -> int:
        """Requested number of partitions, existing ones included."""

    @property
    def assignments(self) -> Sequence[NewReplicas] | None:
        """Manual replicas, one entry per new partition; None to have them chosen."""


@dataclass(frozen=True, slots=True)
class GrownTopic:
    """Outcome for one topic of the request.

    Attributes:
        error: None if the topic got its partitions (or could, with validate_only).
        topic_id: Zero on errors.
        added: How many partitions are new; 0 on errors.
    """

    name: str
    error: KafkaError | None = None
    topic_id: bytes = ZERO_UUID
    added: int = 0


@stepwise
def create_partitions(
    image: MetadataImage,
    topics: Sequence[MorePartitions],
    *,
    validate_only: bool = False,
    placement_start: int = 0,
    descriptors: DescriptorBudget | None = None,
) -> Steps[ControllerResult[list[GrownTopic]]]:
    """Add partitions to topics, in steps.

    Args:
        image: The cluster now; its brokers are the candidates for replicas.
        topics: The topics of the request; a name that repeats gets an error.
        validate_only: Check and answer, write nothing.
        placement_start: Any number, shifts the first leader, see `placement.place`.
        descriptors: Budget from which the new replicas are taken; None: no bound.

    Returns:
        One GrownTopic for each distinct name, in the order of the request.
    """
    counts = Counter(topic.name for topic in topics)
    try:
        _check_total(image, topics)
    except PolicyViolationError as error:
        return ControllerResult((), [GrownTopic(name, error) for name in counts])
    records: list[MetadataRecord] = []
    response: list[GrownTopic] = []
    pace = Pace()
    for number, topic in enumerate(topics):
        if pace.is_step_over(_TOPIC_WORK):
            yield
        if counts[topic.name] == 0:
            continue  # a repetition that was answered already
        try:
            if counts[topic.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            now = _growing(image, topic)
            replicas = yield from _replicas_of(image, now, topic, placement_start + number)
            if descriptors is not None:
                descriptors.take(replicas)
        except KafkaError as error:
            response.append(GrownTopic(topic.name, error))
        else:
            if not validate_only:
                first = len(now.partitions)
                records += yield from partition_records(image, now.id, first, replicas, pace)
            response.append(GrownTopic(topic.name, None, now.id, len(replicas)))
        counts[topic.name] = 0
    return ControllerResult(tuple(records), response)


def _check_total(image: MetadataImage, topics: Sequence[MorePartitions]) -> None:
    """DIFFERS: Kafka answers UNKNOWN_SERVER_ERROR when its list of records is full."""
    known = image.topics_by_name
    total = sum(
        max(topic.count - len(known[topic.name].partitions), 0)
        for topic in topics
        if topic.name in known
    )
    check_partition_total(total)


def check_partition_total(total: int) -> None:
    """Refuse a request for too many partitions.

    Raises:
        PolicyViolationError: More than PARTITIONS_PER_REQUEST_MAX.
    """
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise PolicyViolationError(
            f"Excessively large number of partitions per request: {total}, allowed are "
            f"{PARTITIONS_PER_REQUEST_MAX}."
        )


def _growing(image: MetadataImage, topic: MorePartitions) -> TopicImage:
    """Return the topic before its growth; raises if the requested count is no increase."""
    now = image.topics_by_name.get(topic.name)
    if now is None or not now.partitions:
        raise UnknownTopicError("This server does not host this topic-partition.")
    have = len(now.partitions)
    if topic.count == have:
        raise InvalidPartitionsError(f"Topic already has {have} partition(s).")
    if topic.count < have:
        raise InvalidPartitionsError(
            f"The topic {topic.name} currently has {have} partition(s); {topic.count} would not "
            "be an increase."
        )
    return now


def _factor_of(topic: TopicImage) -> int:
    """Replication factor of a topic: as in Kafka, that of its first partition."""
    return len(next(iter(topic.partitions.values())).replicas)


def _replicas_of(
    image: MetadataImage, now: TopicImage, topic: MorePartitions, start: int
) -> Steps[list[tuple[int, ...]]]:
    """Broker ids of each new partition, the preferred leader first."""
    first, factor = len(now.partitions), _factor_of(now)
    added = topic.count - first
    configs = image.topic_config(now.name)
    hosts = (yield from hosts_of(now)) if is_tiered(configs) else ()
    found = candidates_for(image, now.name, configs, hosts)
    if topic.assignments is None:
        return (
            yield from place.steps(
                list(found.brokers.values()),
                partitions=added,
                replication_factor=factor,
                start=start,
                what=found.what,
                why_few=found.why_few,
            )
        )
    if len(topic.assignments) != added:
        raise InvalidReplicaAssignmentError(
            f"Attempted to add {added} additional partition(s), but only "
            f"{len(topic.assignments)} assignment(s) were specified."
        )
    replicas = [tuple(entry.broker_ids) for entry in topic.assignments]
    pace = Pace()
    for index, each in enumerate(replicas, first):
        check_manual(image.brokers, index, each, factor)
        found.check(each)
        if pace.is_step_over():
            yield
    return replicas


def partition_records(
    image: MetadataImage,
    topic_id: bytes,
    first: int,
    replicas: Sequence[tuple[int, ...]],
    pace: Pace,
) -> Steps[list[MetadataRecord]]:
    """Make the records of new partitions, in steps.

    Args:
        image: Has all brokers in `replicas`.
        topic_id: Of the topic, which may be created by the same decision.
        first: Index of the first new partition; the others follow it.
        replicas: Broker ids of each new partition, at least one of them active.
        pace: Of the decision.
    """
    version = partition_record_version(image.metadata_version)
    records: list[MetadataRecord] = []
    for index, brokers in enumerate(replicas, first):
        isr = [broker_id for broker_id in brokers if image.brokers[broker_id].is_active]
        records.append(
            make(
                "PartitionRecord",
                version,
                partition_id=index,
                topic_id=topic_id,
                replicas=list(brokers),
                isr=isr,
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                # DIFFERS: Kafka names the directory of a broker that has only one. Here the broker
                # assigns a replica once its files are there. An assigned replica without files was
                # lost, and is never created again.
                directories=[DIRECTORY_UNASSIGNED] * len(brokers),
            )
        )
        if pace.is_step_over(RECORD_WORK):
            yield
    return records
