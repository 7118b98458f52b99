"""What each replica of a tiered partition must know of records that it has not on its disk.

Its epoch chain, its producers, its log start and what it takes for copied are compared with what
was told, whenever one of them is another. After an unclean election what a replica knows may be of
a lineage that was given up: then nothing is compared but what it knows of itself.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.quorum_world.errors import Violation
from tests.support.replication_world.copies import Stamp

if TYPE_CHECKING:
    from broker.replica.partition import Partition
    from tests.support.replication_world.node import ReplicaNode
    from tests.support.replication_world.validator import Told
    from tests.support.replication_world.world import ReplicationWorld

ROUNDED_BYTES = 100
"""Shares of segments that overlap are whole numbers of bytes."""


@dataclass
class Known:
    """What is known of one partition, from what was told.

    Attributes:
        rebases: as of when.
        count: of batches that are in `runs`.
        runs: leader epochs, each with the first and the last offset that was told.
        held_to: what was told below, from the log start on, was seen in FINISHED segments.
        start: the highest log start that a leader had.
    """

    rebases: int = -1
    count: int = 0
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    held_to: int = 0
    start: int = 0


class ReplicaRules:
    """See the module."""

    def __init__(self, world: "ReplicationWorld") -> None:
        self.world = world
        self._known: dict[Told, Known] = {}
        self._marks: dict[Any, tuple[object, ...]] = {}
        self._began: dict[Any, tuple[object, int]] = {}

    def look_at(self, node: "ReplicaNode") -> None:
        """Look at the tiered partitions that a broker serves, where something has changed."""
        broker = node.broker
        if broker is None or broker.replicas is None:
            return
        for partition in broker.replicas.partitions.values():
            told = self.world.validator.partitions.get((partition.topic_id, partition.partition))
            log = partition.log
            if told is None or not told.is_tiered or log.lease.is_leased or log.is_offline:
                continue
            mark = (
                log,
                log.log_start_offset,
                log.log_end_offset,
                log.high_watermark,
                log.copied_through,
                log.epoch_file.version,
                partition.leader_epoch,
                partition.is_leader,
                partition.has_barrier,
            )
            if self._marks.get(partition) != mark:
                self._marks[partition] = mark
                self._looks(told, node, partition)

    def _known_of(self, told: "Told") -> Known:
        known = self._known.setdefault(told, Known())
        if known.rebases != told.rebases:
            known.rebases, known.count, known.held_to = told.rebases, 0, 0
            known.runs.clear()
        runs = known.runs
        for one in told.batches[known.count :]:
            if runs and runs[-1][0] == one.epoch:
                runs[-1] = one.epoch, runs[-1][1], one.end - 1
            else:
                runs.append((one.epoch, one.base, one.end - 1))
        known.count = len(told.batches)
        return known

    def _looks(self, told: "Told", node: "ReplicaNode", partition: "Partition") -> None:
        self._knows_nothing_of_the_future(told, node, partition)
        if partition.is_leader and partition.has_barrier:
            epoch = self.world.tier_validator.records.highest_epoch(told.key)
            if epoch < partition.leader_epoch:
                what = f"{node} in {partition.leader_epoch}, the topic ends in {epoch}"
                self._breaks("a log is validated behind its owner's barrier", told, what)
        if told.is_in_doubt:
            return
        self._begins_where_somebody_asked(told, node, partition)
        self._is_copied(told, node, partition)
        self._knows_who_wrote(told, node, partition)
        began = partition.log, partition.leader_epoch
        if self._began.get(partition) != began:
            self._began[partition] = began
            self._knows_producers(told, node, partition)
        start, known = partition.log.log_start_offset, self._known_of(told)
        if partition.is_leader and start > known.start:
            known.start = start
            self._keeps_enough(told, node, partition)

    # -- whatever was told

    def _knows_nothing_of_the_future(
        self, told: "Told", node: "ReplicaNode", partition: "Partition"
    ) -> None:
        """What a producer is said to have written above the log end would be acknowledged."""
        end = partition.log.log_end_offset
        for producer_id, state in partition.log.producers.states.producers.items():
            if state.batches and state.batches[-1][1] >= end:
                what = f"{node} ends at {end}, producer {producer_id} at {state.batches[-1][1]}"
                self._breaks("a replica knows no batch that it has not", told, what)

    # -- by what was told

    def _begins_where_somebody_asked(
        self, told: "Told", node: "ReplicaNode", partition: "Partition"
    ) -> None:
        tier, log = self.world.plan.tier, partition.log
        assert tier is not None
        if tier.retention_bytes < 0 and log.log_start_known:
            start = log.log_start_offset
            if start > told.asked_start:
                what = f"{node} {start}, asked to {told.asked_start}"
                self._breaks("a log start moves only where somebody asks", told, what)

    def _is_copied(self, told: "Told", node: "ReplicaNode", partition: "Partition") -> None:
        copied = partition.log.copied_through
        missing = None if copied < 0 else self.not_held(told, copied + 1)
        if missing is not None:
            what = f"{node} to {copied}, without {missing}"
            self._breaks("what a replica takes for copied is FINISHED", told, what)

    def not_held(self, told: "Told", end: int) -> Stamp | None:
        """The first batch below an offset (exclusive) that was told and is in no segment."""
        known, validate = self._known_of(told), self.world.tier_validator
        at = max(known.held_to, told.start_max)
        place = bisect_left(told.bases, at)
        if place and told.batches[place - 1].end > at:
            place -= 1
        for one in told.batches[place:]:
            if one.end > end or one.base >= told.weak_from:
                break
            if not validate.holds(told, one):
                return one
            known.held_to = one.end
        return None

    def _knows_who_wrote(self, told: "Told", node: "ReplicaNode", partition: "Partition") -> None:
        """The chain reaches from the log start on, wherever the first segment begins."""
        log = partition.log
        if partition.is_chain_lost:
            return
        end = min(told.copies[node.id].agrees_to, told.end, told.weak_from, log.log_end_offset)
        start = max(told.start_max, log.log_start_offset)
        for epoch, run_first, run_last in self._known_of(told).runs:
            first, last = max(run_first, start), min(run_last, end - 1)
            for offset in (first, last) if first <= last else ():
                said = log.epochs.epoch_for(offset)
                if said != epoch:
                    what = f"{node} says {said} of {offset}, which {epoch} wrote"
                    self._breaks("a replica knows who wrote each offset", told, what)

    def _knows_producers(self, told: "Told", node: "ReplicaNode", partition: "Partition") -> None:
        """Who leads must know a batch again that its producer sends twice."""
        end = min(told.copies[node.id].agrees_to, told.weak_from, partition.log.log_end_offset)
        here = [one for one in told.batches if one.producer_id >= 0 and one.end <= end]
        newest = {one.producer_id: one for one in here}
        producers = partition.log.producers.states.producers
        for producer_id, stamp in newest.items():
            if stamp.base < told.start_max:
                continue
            state = producers.get(producer_id)
            if state is None or state.last_sequence < stamp.sequence:
                said = None if state is None else state.last_sequence
                what = f"{node} knows {said} of producer {producer_id}, told was {stamp}"
                self._breaks("a replica knows the producers of what lies below its end", told, what)

    def _keeps_enough(self, told: "Told", node: "ReplicaNode", partition: "Partition") -> None:
        """Total retention counts the bytes of both tiers once."""
        tier, start = self.world.plan.tier, partition.log.log_start_offset
        assert tier is not None
        if tier.retention_bytes < 0 or start <= told.asked_start:
            return
        copy = told.copies[node.id]
        kept = told.batches[bisect_left(told.bases, start) :]
        kept += copy.batches[copy.index_at(max(told.end, start)) :]
        size_bytes = sum(one.size_bytes for one in kept)
        if size_bytes < tier.retention_bytes - ROUNDED_BYTES:
            what = f"{node} begins at {start} and keeps {size_bytes} of {tier.retention_bytes}"
            self._breaks("total retention keeps as much as the topic wants", told, what)

    # -- who may lead next

    def validate_member(self, told: "Told", member: int) -> None:
        """One of the ISR, or eligible, that has not ended uncleanly: it may lead next."""
        if told.is_in_doubt:
            return
        copy = told.copies[member]
        missing = self.not_held(told, copy.start) if copy.start > told.start_max else None
        if missing is not None:
            what = f"n{member} begins at {copy.start}, without {missing}"
            self._breaks("members have what is below their first segment remotely", told, what)
        kept = self.world.nodes[member].log_start_on_disk(told.name)
        if kept is not None and kept < told.deleted_to:
            what = f"n{member} begins at {kept}, deleted was to {told.deleted_to}"
            self._breaks("what was deleted stays deleted", told, what)

    def _breaks(self, rule: str, told: "Told", what: str) -> None:
        raise Violation(rule, f"{told}: {what}")
