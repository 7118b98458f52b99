"""AlterPartitionReassignments and ListPartitionReassignments: partitions get other replicas.

During a reassignment a partition has its target replicas, followed by those it loses, by id. New
ones are marked as adding, the last ones as removing. All fetch, and join the ISR as any replica
does. The change that brings the last target replica into the ISR completes the reassignment, see
`partition_change`. Until then it can be cancelled or replaced.

Source: Kafka 4.3's ReplicationControlManager; KIP-455, KIP-860.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.election_rules import DEFAULT_RULES, ElectionRules, rules_of
from metadata_topic.controller.errors import (
    ControllerError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    UnknownTopicError,
)
from metadata_topic.controller.free_descriptors import DescriptorBudget
from metadata_topic.controller.partition_change import (
    Election,
    Electorate,
    change_records,
    decide,
    with_replicas,
)
from metadata_topic.controller.replica_assignment import check_replicas
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.tiered_placement import candidates_for
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import PartitionImage, TopicImage
from metadata_topic.image.records import RECORD_WORK, MetadataRecord
from metadata_topic.image.replay_topics import merge
from runtime.work import Pace, Steps, stepwise


class NoReassignmentInProgressError(ControllerError):
    """The partition has no reassignment to cancel."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class Reassignment(NamedTuple):
    """Target replicas of a partition, the preferred leader first; None to cancel."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


class OngoingReassignment(NamedTuple):
    """A partition under reassignment."""

    topic: str
    partition: int
    image: PartitionImage


@stepwise
def alter_reassignments(
    image: MetadataImage,
    asked: Sequence[Reassignment],
    *,
    allows_other_factor: bool = True,
    defaults: ElectionRules = DEFAULT_RULES,
    descriptors: DescriptorBudget | None = None,
) -> Steps[ControllerResult[list[KafkaError | None]]]:
    """Begin or cancel reassignments, in steps; each succeeds or fails on its own.

    Args:
        image: The cluster now.
        asked: Independent of each other; a second one for a partition sees the first one's change.
        allows_other_factor: The number of replicas may change.
        defaults: Election settings in the properties of this controller.
        descriptors: Budget from which added replicas are taken; None: no bound.

    Returns:
        The error of each, in order; None where it was carried out.
    """
    electorate = Electorate(image)
    changed: dict[ReplicaId, PartitionImage] = {}
    records: list[MetadataRecord] = []
    response: list[KafkaError | None] = []
    pace = Pace()
    for one in asked:
        if pace.is_step_over(RECORD_WORK):
            yield
        try:
            topic = _topic(image, one)
            replica = ReplicaId(topic.id, one.partition)
            old = changed.get(replica, topic.partitions[one.partition])
            rules = rules_of(image, topic, defaults)
            if one.replicas is None:
                wanted, election = _cancelled(old, one, rules), None
            else:
                wanted = _reassigned(image, old, one, allows_other_factor=allows_other_factor)
                election = Election.ONLINE
                if descriptors is not None:
                    descriptors.take([tuple({*wanted.replicas} - {*old.replicas})])
        except KafkaError as error:
            response.append(error)
            continue
        new = decide(old, wanted, electorate, rules, election=election)
        for record in change_records(image, topic.id, one.partition, old, new):
            records.append(record)
            changed[replica] = merge(old, record.value)
        response.append(None)
    return ControllerResult(tuple(records), response)


def _topic(image: MetadataImage, one: Reassignment) -> TopicImage:
    topic = image.topics_by_name.get(one.topic)
    if topic is None:
        raise UnknownTopicError(f"Unable to find a topic named {one.topic}.")
    if one.partition not in topic.partitions:
        raise UnknownTopicError(f"Unable to find partition {one.topic}:{one.partition}.")
    return topic


def _cancelled(old: PartitionImage, one: Reassignment, rules: ElectionRules) -> PartitionImage:
    if not old.adding and not old.removing:
        raise NoReassignmentInProgressError("No partition reassignment is in progress.")
    replicas = tuple(broker_id for broker_id in old.replicas if broker_id not in old.adding)
    isr = tuple(broker_id for broker_id in old.isr if broker_id in replicas)
    if not isr and not rules.is_unclean:
        raise InvalidReplicaAssignmentError(
            f"Unable to revert partition assignment for {one.topic}:{one.partition} because it "
            "would require an unclean leader election."
        )
    return with_replicas(replace(old, isr=isr, adding=(), removing=()), replicas)


def _reassigned(
    image: MetadataImage, old: PartitionImage, one: Reassignment, *, allows_other_factor: bool
) -> PartitionImage:
    replicas = one.replicas
    assert replicas is not None
    check_replicas(image.brokers, replicas)
    settled = len(old.replicas) - len(old.removing)
    if len(replicas) != settled and not allows_other_factor:
        raise InvalidReplicationFactorError(
            f"The replication factor is changed from {settled} to {len(replicas)}"
        )
    configs = image.topic_config(one.topic)
    candidates = candidates_for(image, one.topic, configs, old.replicas)
    # Present replicas may stay on brokers without a known tier: this happens while a cluster of
    # Kafka is taken over. The order of the replicas may change.
    candidates.check(one for one in replicas if one not in old.replicas)
    removing = sorted({*old.replicas} - {*replicas})
    all_replicas = (*replicas, *removing)
    # DIFFERS: if a reassignment replaces another, Kafka forgets which replicas the old one added.
    # It continues to remove replicas that the new one keeps, or never completes.
    before = {*old.replicas} - {*old.adding}
    adding = sorted({*all_replicas} - before)
    wanted = replace(old, adding=tuple(adding), removing=tuple(removing))
    return with_replicas(wanted, all_replicas)


def list_reassignments(
    image: MetadataImage, asked: Sequence[tuple[str, Sequence[int]]] | None
) -> Steps[list[OngoingReassignment]]:
    """Find the partitions under reassignment, in steps.

    Args:
        image: The cluster now.
        asked: Topics and partitions, of which unknown ones are skipped; None: all.
    """
    found: list[OngoingReassignment] = []
    pace = Pace()
    for topic, partitions in _asked_topics(image, asked):
        for index in partitions:
            partition = topic.partitions.get(index)
            if partition is not None and (partition.adding or partition.removing):
                found.append(OngoingReassignment(topic.name, index, partition))
            if pace.is_step_over():
                yield
    return found


def _asked_topics(
    image: MetadataImage, asked: Sequence[tuple[str, Sequence[int]]] | None
) -> Iterator[tuple[TopicImage, Sequence[int]]]:
    if asked is None:
        for topic in image.topics_by_id.values():
            yield topic, tuple(topic.partitions)
        return
    for name, partitions in asked:
        found = image.topics_by_name.get(name)
        if found is not None:
            yield found, partitions
