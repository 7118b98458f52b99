"""Decides AlterPartition, by which the leader of a partition proposes another ISR.

The leader has the replicas' fetch state; the controller has the brokers' registrations. A proposal
carries the leader epoch, partition epoch and broker epochs that the leader has. The controller
accepts it only if all of them are current. A newer incarnation of an ISR member may lack records
that the proposed one had.

Source: Kafka 4.3's ReplicationControlManager.alterPartition; KIP-841 (fenced brokers), KIP-903
(broker epochs), KIP-704 (recovery from an unclean election).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kafka_protocol.errors import KafkaError, UnknownTopicId
from metadata_topic.controller.broker_sessions import check_broker_epoch
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.election_rules import DEFAULT_RULES, ElectionRules, rules_of
from metadata_topic.controller.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NewLeaderElectedError,
    NotControllerError,
    UnknownTopicError,
)
from metadata_topic.controller.partition_change import Electorate, change_records, decide
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import RECOVERED, RECOVERING, PartitionImage
from metadata_topic.image.records import RECORD_WORK, MetadataRecord
from metadata_topic.image.replay_topics import merge
from runtime.work import Pace, Steps, stepwise

ANY_EPOCH = -1
"""A broker epoch that is not compared, because the leader did not send it."""


@dataclass(frozen=True, slots=True)
class ProposedIsr:
    """The ISR that a leader proposes for one partition.

    Attributes:
        leader_epoch, partition_epoch: The values that the leader has.
        members: (broker id, broker epoch or ANY_EPOCH) of each member of the proposed ISR.
        recovery_state: RECOVERED or RECOVERING.
    """

    replica: ReplicaId
    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]
    recovery_state: int = RECOVERED

    @property
    def isr(self) -> tuple[int, ...]:
        """Broker ids of the members."""
        return tuple(broker_id for broker_id, _ in self.members)


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """Outcome of one proposal: the partition after it, or the error.

    NEW_LEADER_ELECTED: the change was written, and the proposer no longer leads.
    """

    replica: ReplicaId
    partition: PartitionImage | None
    error: KafkaError | None = None


@stepwise
def alter_partition(
    image: MetadataImage,
    *,
    broker_id: int,
    broker_epoch: int,
    proposals: Sequence[ProposedIsr],
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[list[AlteredPartition]]]:
    """Decide the proposals of a leader, in steps; each is accepted or refused on its own.

    Args:
        image: The cluster now.
        broker_id: The broker that asks; it must lead the partitions.
        broker_epoch: Of the incarnation that asks.
        proposals: Independent of each other; a second one for a partition sees the first one's
            change.
        defaults: Election settings in the properties of this controller.

    Returns:
        One AlteredPartition for each proposal, in the same order.

    Raises:
        StaleBrokerEpochError: The broker is not registered under this epoch.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    electorate = Electorate(image)
    changed: dict[ReplicaId, PartitionImage] = {}
    records: list[MetadataRecord] = []
    response: list[AlteredPartition] = []
    pace = Pace()
    for asked in proposals:
        if pace.is_step_over(RECORD_WORK):
            yield
        replica = asked.replica
        try:
            topic = image.topics_by_id.get(replica.topic_id)
            if topic is None:
                raise UnknownTopicId("no topic has this id")
            old = changed.get(replica, topic.partitions.get(replica.partition))
            if old is None:
                raise UnknownTopicError(f"{topic.name} has no partition {replica.partition}")
            _check_epochs(old, broker_id, asked)
            _check_isr(old, asked)
            _check_members(image, old, asked)
        except KafkaError as error:
            response.append(AlteredPartition(replica, None, error))
            continue
        wanted = replace(old, isr=asked.isr, leader_recovery_state=asked.recovery_state)
        new = decide(old, wanted, electorate, rules_of(image, topic, defaults))
        for record in change_records(image, topic.id, replica.partition, old, new):
            records.append(record)
            old = changed[replica] = merge(old, record.value)
        if old.leader == broker_id:
            response.append(AlteredPartition(replica, old))
        else:
            # The proposal completed a reassignment that removes the proposer.
            led = NewLeaderElectedError(f"broker {old.leader} leads {topic.name} by now")
            response.append(AlteredPartition(replica, None, led))
    return ControllerResult(tuple(records), response)


def _check_epochs(now: PartitionImage, broker_id: int, asked: ProposedIsr) -> None:
    """Raise if the proposal was made for another state of the partition.

    Checks in Kafka's order.
    """
    if asked.leader_epoch > now.leader_epoch or asked.partition_epoch > now.partition_epoch:
        # The leader has read more of the log than this controller: another one is active.
        raise NotControllerError(
            f"leader epoch {asked.leader_epoch} and partition epoch {asked.partition_epoch} are "
            f"newer than {now.leader_epoch} and {now.partition_epoch}"
        )
    if asked.leader_epoch < now.leader_epoch:
        raise FencedLeaderEpochError(
            f"leader epoch {asked.leader_epoch} is over; it is {now.leader_epoch}"
        )
    if broker_id != now.leader:
        raise InvalidRequestError(f"broker {broker_id} asks, and broker {now.leader} leads")
    if asked.partition_epoch < now.partition_epoch:
        raise InvalidUpdateVersionError(
            f"partition epoch {asked.partition_epoch} is over; it is {now.partition_epoch}"
        )


def _check_isr(now: PartitionImage, asked: ProposedIsr) -> None:
    isr, state = asked.isr, asked.recovery_state
    if len(set(isr)) < len(isr) or not set(isr) <= set(now.replicas):
        raise InvalidRequestError(f"ISR {list(isr)} is none of replicas {list(now.replicas)}")
    if now.leader not in isr:
        raise InvalidRequestError(f"ISR {list(isr)} is without the leader {now.leader}")
    if state not in (RECOVERED, RECOVERING):
        raise InvalidRequestError(f"leader recovery state {state} is unknown")
    if state == RECOVERING and len(isr) > 1:
        raise InvalidRequestError(
            f"ISR {list(isr)} has others than the leader, which recovers from an unclean election"
        )
    if state == RECOVERING and now.leader_recovery_state == RECOVERED:
        raise InvalidRequestError("a leader that has recovered does not recover again")


def _check_members(image: MetadataImage, now: PartitionImage, asked: ProposedIsr) -> None:
    for broker_id, broker_epoch in asked.members:
        broker = image.brokers.get(broker_id)
        if broker is None:
            why = "is not registered"
        elif broker.in_controlled_shutdown:
            why = "stops"
        elif broker.fenced:
            why = "is fenced"
        elif broker_epoch not in (ANY_EPOCH, broker.epoch):
            why = f"has broker epoch {broker.epoch}, not {broker_epoch}"
        elif not broker.works_with(now.directory_of(broker_id)):
            # DIFFERS: Kafka takes it, though it cannot be elected.
            why = "has lost the log directory of its replica"
        else:
            continue
        raise IneligibleReplicaError(f"broker {broker_id} {why}")
