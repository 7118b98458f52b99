"""From a decision on a partition to its PartitionChangeRecord: ISR, eligible replicas, leader.

Every change of an existing partition goes through here, so that all changes elect by one order:

* the leader stays while it may lead;
* else the first replica in assignment order that is in the ISR and may lead;
* with an empty ISR the same among the eligible leader replicas (ELR);
* with both empty the last known leader; then the election is unclean;
* where the election may be unclean, any replica that may lead and is not being added.

The ELR (KIP-966) has the replicas that left the ISR while it was below `min.insync.replicas`. The
high watermark stood still meanwhile, so each of them has all committed records. A replica that lost
records since then (power cut, lost log directory) is not eligible.

During a reassignment the replicas are the target replicas, followed by those to remove; all of
them fetch and may join the ISR. It is complete when all target replicas are in the ISR. The change
that completes it removes the others from replicas and ISR. It elects again if one of them led.

Source: Kafka 4.3's PartitionChangeBuilder, PartitionReassignmentReplicas.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from msgspec.structs import replace

from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    RECOVERING,
    BrokerImage,
    PartitionImage,
)
from metadata_topic.image.records import (
    MetadataRecord,
    make,
    partition_record_version,
)

_LEADER_KEPT_ON_SHRINK_LEVEL: Final = 12
"""3.6-IV0: below it Kafka's brokers need a new leader epoch when an ISR shrinks (KAFKA-15021)."""


class Election(Enum):
    """Purpose of an election."""

    ONLINE = "keep the partition online"
    PREFERRED = "let the first replica lead"
    UNCLEAN = "keep it online, even if records are lost"
    ORDERED = "the same by an operator's order, also with a replica that is being added"


@dataclass(frozen=True, slots=True)
class Electorate:
    """Brokers that may lead.

    Attributes:
        image: The cluster before the decision.
        then: One broker as it is after the decision; None: all are as in the image.
    """

    image: MetadataImage
    then: BrokerImage | None = None

    def may_lead(self, partition: PartitionImage, replica: int) -> bool:
        """True if the broker is active and has the log directory of the replica."""
        if replica not in partition.replicas:
            return False
        is_then = self.then is not None and self.then.id == replica
        broker = self.then if is_then else self.image.brokers.get(replica)
        return (
            broker is not None
            and broker.is_active
            and broker.works_with(partition.directory_of(replica))
        )


def decide(
    old: PartitionImage,
    wanted: PartitionImage,
    electorate: Electorate,
    rules: ElectionRules,
    *,
    election: Election | None = None,
    ineligible: Collection[int] = (),
    blank: Collection[int] = (),
    may_empty_isr: bool = False,
) -> PartitionImage:
    """Return a partition after a change of it, with leader and ELR decided.

    Args:
        old: The present partition.
        wanted: `old` with its new replicas, ISR, directories, last known leader or recovery state.
            Leader and ELR are decided here, and whether a reassignment is complete.
        electorate: Brokers that may lead.
        rules: Of the topic.
        election: None: keep the partition online, by an unclean election if the topic allows it.
        ineligible: Brokers that lack committed records; they are not in the ELR.
        blank: Brokers whose replica was created again, empty; never the last known leader either.
        may_empty_isr: The last member may leave the ISR, also without ELR.
    """
    if election is None:
        election = Election.UNCLEAN if rules.is_unclean else Election.ONLINE
    decided = partial(
        _decided,
        old,
        electorate=electorate,
        rules=rules,
        election=election,
        ineligible=ineligible,
        blank=blank,
        may_empty_isr=may_empty_isr,
    )
    completed = _completed(wanted)
    if completed is not None:
        new = decided(completed)
        # DIFFERS: Kafka takes replicas out also where none of the others can lead now.
        if new.leader != NO_LEADER or not wanted.removing:
            return new
    return decided(wanted)


def _completed(partition: PartitionImage) -> PartitionImage | None:
    """Return the partition after its reassignment; None if that is incomplete or absent."""
    if not partition.adding and not partition.removing:
        return None
    replicas = tuple(one for one in partition.replicas if one not in partition.removing)
    isr = tuple(one for one in partition.isr if one not in partition.removing)
    if not replicas or not set(replicas) <= set(isr):
        return None
    return with_replicas(replace(partition, isr=isr, adding=(), removing=()), replicas)


def with_replicas(partition: PartitionImage, replicas: tuple[int, ...]) -> PartitionImage:
    """Return the partition with other replicas; those that stay keep their log directories."""
    return replace(
        partition,
        replicas=replicas,
        directories=tuple(
            partition.directory_of(one) if one in partition.replicas else DIRECTORY_UNASSIGNED
            for one in replicas
        ),
    )


def _decided(
    old: PartitionImage,
    wanted: PartitionImage,
    *,
    electorate: Electorate,
    rules: ElectionRules,
    election: Election,
    ineligible: Collection[int],
    blank: Collection[int],
    may_empty_isr: bool,
) -> PartitionImage:
    """Decide leader and ELR of a partition with these replicas."""
    has_elr = electorate.image.elr_enabled
    last_known = tuple(one for one in wanted.last_known_elr if one not in blank)
    eligible = _eligible(old, wanted, rules) if has_elr else old.elr
    elr = tuple(one for one in eligible if one not in ineligible and one not in blank)
    new = replace(wanted, elr=elr, last_known_elr=last_known)
    leader, is_unclean = _elect(new, electorate, election)
    # Without the feature an ELR from a log of Kafka counts until a leader is elected.
    isr, elr = new.isr, new.elr if has_elr or leader == NO_LEADER else ()
    recovery = new.leader_recovery_state
    if leader != old.leader and leader != NO_LEADER:
        if is_unclean:
            isr, elr, recovery = (leader,), (), RECOVERING
        elif leader not in isr:
            isr, elr = (leader,), tuple(one for one in elr if one != leader)
            # DIFFERS: the new leader commits alone if the minimum was lowered meanwhile.
            elr = elr if len(isr) < rules.min_isr else ()
        last_known = ()
    elif leader != old.leader and has_elr and not last_known and old.leader not in blank:
        last_known = (old.leader,)
    if not isr and not has_elr and not may_empty_isr:
        isr = old.isr
    return replace(
        new,
        isr=isr,
        leader=leader,
        elr=elr,
        last_known_elr=last_known,
        leader_recovery_state=recovery,
    )


def _eligible(old: PartitionImage, wanted: PartitionImage, rules: ElectionRules) -> tuple[int, ...]:
    isr = wanted.isr
    if len(isr) >= rules.min_isr:
        return ()
    left = {*old.elr, *old.isr} - {*isr}
    return tuple(sorted(left.intersection(wanted.replicas)))


def _elect(new: PartitionImage, electorate: Electorate, election: Election) -> tuple[int, bool]:
    """Return the leader and whether it may lack records; `new.leader` is the previous leader."""
    clean = new.isr or new.elr
    order = [new.leader, *new.replicas]
    if election is Election.PREFERRED:
        order.insert(0, new.replicas[0])
    for replica in order:
        if replica in clean and electorate.may_lead(new, replica):
            return replica, False
    for replica in _unclean_candidates(new, electorate, election):
        if electorate.may_lead(new, replica):
            return replica, True
    return NO_LEADER, False


def _unclean_candidates(
    new: PartitionImage, electorate: Electorate, election: Election
) -> Iterator[int]:
    is_known = electorate.image.elr_enabled and len(new.last_known_elr) == 1
    if is_known and not new.isr and not new.elr:
        yield from new.last_known_elr
    if election in (Election.UNCLEAN, Election.ORDERED):
        # DIFFERS: Kafka also elects a replica that is being added, which may be empty.
        yield from (one for one in new.replicas if one not in new.adding)
    if election is Election.ORDERED:  # all previous replicas may be lost permanently
        yield from new.adding


_FIELDS: Final = {
    "isr": "isr",
    "leader": "leader",
    "leader_recovery_state": "leader_recovery_state",
    "elr": "eligible_leader_replicas",
    "last_known_elr": "last_known_elr",
    "directories": "directories",
    "replicas": "replicas",
    "adding": "adding_replicas",
    "removing": "removing_replicas",
}
"""Fields that a decision may change, and their names in the record."""


def change_records(
    image: MetadataImage,
    topic_id: bytes,
    partition_id: int,
    old: PartitionImage,
    new: PartitionImage,
) -> list[MetadataRecord]:
    """Make a PartitionChangeRecord of the fields that differ; an empty list if none does."""
    fields: dict[str, object] = {}
    for name, in_record in _FIELDS.items():
        value = getattr(new, name)
        if value != getattr(old, name):
            fields[in_record] = list(value) if isinstance(value, tuple) else value
    if not fields:
        return []
    needs_epoch = not set(old.replicas) <= set(new.replicas)
    if image.metadata_version < _LEADER_KEPT_ON_SHRINK_LEVEL:
        needs_epoch |= not set(old.isr) <= set(new.isr)
    if needs_epoch:
        fields["leader"] = new.leader
    version = partition_record_version(image.metadata_version)
    return [
        make(
            "PartitionChangeRecord",
            version,
            partition_id=partition_id,
            topic_id=topic_id,
            **fields,
        )
    ]


def has_other_copies(partition: PartitionImage, broker_id: int) -> bool:
    """True if another replica, alive or not, has all committed records."""
    return any(one != broker_id for one in (*partition.isr, *partition.elr))


def without(partition: PartitionImage, broker_id: int) -> PartitionImage:
    """Return the partition with a broker removed from its ISR."""
    return replace(partition, isr=tuple(one for one in partition.isr if one != broker_id))


def in_directory(
    partition: PartitionImage, broker_id: int, directory_id: bytes | None
) -> PartitionImage:
    """Return the partition with a replica in another directory; None: unchanged."""
    if directory_id is None or partition.directory_of(broker_id) == directory_id:
        return partition
    directories = [partition.directory_of(member) for member in partition.replicas]
    directories[partition.replicas.index(broker_id)] = directory_id
    return replace(partition, directories=tuple(directories))
