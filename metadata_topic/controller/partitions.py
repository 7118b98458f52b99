"""More partitions for topics that are there (KIP-195), and the records of any new partition.

Every topic of a request succeeds or fails on its own; what succeeds is written as one batch. A
request that would make more than PARTITIONS_PER_REQUEST_MAX partitions fails as a whole, before
anything is built per partition.
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
    """A topic of a CreatePartitions request; the request's own structs fit."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def count(self) -> int:
        """How many partitions it shall have, those of now included."""

    @property
    def assignments(self) -> Sequence[NewReplicas] | None:
        """Manual replicas, one entry a new partition; None to have them chosen."""


@dataclass(frozen=True, slots=True)
class GrownTopic:
    """What became of one topic of the request.

    Attributes:
        error: why it got no partitions, None if it did (or could, with validate_only).
        topic_id: zero on errors.
        added: how many partitions are new; 0 on errors.
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
        image: the cluster now; its brokers are the candidates for replicas.
        topics: as asked for; names may repeat (then none of that name grows).
        validate_only: check and answer, write nothing.
        placement_start: any number, see `placement.place`.
        descriptors: what the partitions take of their brokers' descriptors is taken from it; None:
            there is no bound.

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
    """Refuse a request that would make so many partitions.

    Raises:
        PolicyViolationError: more than PARTITIONS_PER_REQUEST_MAX.
    """
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise PolicyViolationError(
            f"Excessively large number of partitions per request: {total}, allowed are "
            f"{PARTITIONS_PER_REQUEST_MAX}."
        )


def _growing(image: MetadataImage, topic: MorePartitions) -> TopicImage:
    """The topic as it is now, of which `topic` asks for something that can be."""
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
    """As in Kafka the first partition has as many replicas as all shall have."""
    return len(next(iter(topic.partitions.values())).replicas)


def _replicas_of(
    image: MetadataImage, now: TopicImage, topic: MorePartitions, start: int
) -> Steps[list[tuple[int, ...]]]:
    """Per new partition broker ids, the preferred leader first."""
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
        image: its brokers are all of those in `replicas`.
        topic_id: of the topic, which may be made by the same decision.
        first: index of the first of the new partitions; the others follow it.
        replicas: per new partition broker ids, of which at least one is active.
        pace: of the decision.
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
                # DIFFERS: Kafka names the directory of a broker that has only one. Here a replica
                # is assigned by its broker when its files are there: what is assigned and missing
                # was lost, and is never begun again.
                directories=[DIRECTORY_UNASSIGNED] * len(brokers),
            )
        )
        if pace.is_step_over(RECORD_WORK):
            yield
    return records
