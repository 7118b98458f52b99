"""What must hold of tiered partitions: nothing that was told leaves a disk but for the store.

The metadata topic is folded here as every tier folds it, record by record as they land. What lies
in FINISHED segments by that, and in the store, counts as kept. Each (leader epoch, offset) that
leaves a disk is looked for there: so a replica goes by its own chain, whatever its leader says.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from rlmm import lineage, records
from rlmm.api import REMOVER_FENCE, PartitionDeleteState
from rlmm.events import MetadataEvent, PartitionDeleted
from rlmm.fold import Fold
from rlmm.lifecycle import Verdict
from rlmm.store import MemoryStore, Position
from rlmm.topic_based.lookups import home_of
from rsm_plugins.layout.objects import (
    DamagedObjectError,
    ObjectFacts,
    object_names,
    parse_key,
    parse_manifest,
)
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from tests.support.quorum_world.errors import Violation
from tests.support.replication_world.broker import ReplicaSide
from tests.support.replication_world.copies import Stamp
from tests.support.replication_world.copy_rules import batches_of, wrong_state
from tests.support.replication_world.plan import is_tiered
from tests.support.replication_world.record_rules import RecordRules
from tests.support.replication_world.tier_topic import PARTITIONS
from tests.support.tier.memory_topic import StoredRecord

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.replication_world.node import ReplicaNode
    from tests.support.replication_world.validator import Told
    from tests.support.replication_world.world import ReplicationWorld

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
END_LOST = "log end lost"
OBJECT = ": remote segment "
"""An object that was damaged or missing once stays unhealthy until it is read again."""
GONE = SegmentState.DELETE_SEGMENT_FINISHED
ALIVE = {SegmentState.COPY_SEGMENT_STARTED, FINISHED}
Place = tuple[bytes, int]
Known = defaultdict[Place, dict[bytes, RemoteLogSegmentMetadata]]


class TierValidator:
    """See the module.

    Attributes:
        finished: by partition and id.
        removals: of partitions whose topic is deleted: how far it is.
        orphans: ids of segments whose records were lost with the end of the metadata topic.
        cuts: how often it lost some.
        records: what must hold of each record.
        copied, dropped, deleted: segments that became FINISHED, batches that left a disk, segments
            whose deletion began.
    """

    def __init__(self, world: "ReplicationWorld") -> None:
        self.world, self.records = world, RecordRules(world)
        self.finished: dict[Place, dict[bytes, RemoteLogSegmentMetadata]] = {}
        self.copied = self.dropped = self.deleted = 0
        self.removals: dict[Place, PartitionDeleteState] = {}
        self._store = MemoryStore()
        self._unfinished: dict[bytes, RemoteLogSegmentMetadata] = {}
        self._left: list[tuple[Told, QuorumNode, list[Stamp]]] = []
        self._ended: list[RemoteLogSegmentMetadata] = []
        self.orphans: set[bytes] = set()
        self.cuts = 0
        world.tier_topic.on_land = self.lands
        world.tier_topic.on_lost = self._loses

    # -- the metadata topic

    def lands(self, partition: int, offset: int) -> None:
        """A record has its place in the topic."""
        value = self.world.tier_topic.logs[partition][offset].value
        assert value is not None
        event = records.decode(value)
        fold = Fold(self._store, partition)
        verdict = fold.take(event, order=offset, seen_ms=0)
        self._store.write(partition, fold.changes, Position(offset + 1, 0))
        self.world.saw(f"topic {partition} {offset} {type(event).__name__} {verdict.value}")
        self.records.lands(event, verdict, self.world.tier_topic.writer)
        if verdict is not Verdict.ACCEPTED:
            return
        if isinstance(event, PartitionDeleted):
            self._removes(event)
        elif event.stamp.fence == REMOVER_FENCE:
            self._removes_segment(event)
        for (_, segment_id), change in fold.changes.segments.items():
            before = None if change.before is None else change.before.metadata
            after = None if change.after is None else change.after.metadata
            self._moves(segment_id, before, after)

    def may_lose(self, partition: int, end: int) -> bool:
        """Whether the last records of the metadata topic can go: nothing rests on them so far.

        What has left a disk is in other segments, and none comes back whose deletion began.
        """
        log = self.world.tier_topic.logs[partition]
        lost = [records.decode(one.value) for one in log[end:] if one.value is not None]
        if any(isinstance(one, PartitionDeleted) for one in lost):
            return False
        before, after = self._folded(partition, log), self._folded(partition, log[:end])
        for key, segments in after.items():
            for segment_id, metadata in segments.items():
                now = before[key].get(segment_id)
                if metadata.state in ALIVE and (now is None or now.state not in ALIVE):
                    return False
        return all(
            self._is_kept(told, after[told.key])
            for told in self.world.validator.partitions.values()
            if told.is_tiered and home_of(told.key, PARTITIONS) == partition
        )

    def _folded(self, partition: int, log: Sequence[StoredRecord]) -> Known:
        """All segments by records of a partition of the metadata topic."""
        known = Known(dict)
        for (key, segment_id), change in _fold(partition, log).changes.segments.items():
            if change.after is not None:
                known[key][segment_id] = change.after.metadata
        return known

    def _is_kept(self, told: "Told", known: dict[bytes, RemoteLogSegmentMetadata]) -> bool:
        """Whether what a disk has dropped lies in FINISHED segments of those that are known."""
        dropped_to = max(copy.start for copy in told.copies.values())
        finished = [one for one in known.values() if one.state is FINISHED]
        dropped = [one for one in told.batches if one.base < dropped_to]
        return all(_holds(finished, told, one) for one in self._wanted(told, dropped))

    def _loses(self, partition: int, end: int) -> None:
        """The topic ends there: what was recorded above is forgotten, its objects are orphans."""
        log = self.world.tier_topic.logs[partition]
        self._store.drop(partition)
        self._store.write(partition, _fold(partition, log).changes, Position(len(log), 0))
        known = self._folded(partition, log)
        for key, here in self.finished.items():
            if home_of(key, PARTITIONS) == partition:
                self.orphans |= here.keys() - known[key].keys()
                here.clear()
                finished = [one for one in known[key].values() if one.state is FINISHED]
                here.update((one.id.id, one) for one in finished)
        for segment_id, one in list(self._unfinished.items()):
            tip = one.topic_id_partition
            if home_of((tip.topic_id, tip.partition), PARTITIONS) == partition:
                del self._unfinished[segment_id]
                self.orphans.add(segment_id)
        for segments in known.values():
            for segment_id, one in segments.items():
                self.orphans.discard(segment_id)
                if one.state is not FINISHED:
                    self._unfinished[segment_id] = one
        self.cuts += 1
        self.world.saw(f"topic {partition} ends at {end}")

    def _removes(self, event: PartitionDeleted) -> None:
        tip = event.topic_id_partition
        if tip.topic_id not in self.world.validator.removed:
            raise Violation("remote data go only once the removal is committed", f"{event}")
        self.removals[tip.topic_id, tip.partition] = event.state

    def _removes_segment(self, event: MetadataEvent) -> None:
        tip = event.topic_id_partition
        state = self.removals.get((tip.topic_id, tip.partition))
        if state is not PartitionDeleteState.DELETE_PARTITION_STARTED:
            raise Violation("segments of a deleted topic go after the grace time", f"{event}")

    def _moves(
        self,
        segment_id: bytes,
        before: RemoteLogSegmentMetadata | None,
        after: RemoteLogSegmentMetadata | None,
    ) -> None:
        known = after or before
        assert known is not None
        tip = known.id.topic_id_partition
        here = self.finished.setdefault((tip.topic_id, tip.partition), {})
        if after is None or after.state is GONE:
            self._unfinished.pop(segment_id, None)
            here.pop(segment_id, None)
        elif after.state is FINISHED:
            self._unfinished.pop(segment_id, None)
            if segment_id not in here:
                self.copied += 1
                here[segment_id] = after
                self._is_copied(after)
        else:
            self._unfinished[segment_id] = after
            if here.pop(segment_id, None) is not None:
                self.deleted += 1
                self._ended.append(after)

    # -- what is looked at

    def told_of(self, metadata: RemoteLogSegmentMetadata) -> "Told | None":
        tip = metadata.id.topic_id_partition
        return self.world.validator.partitions.get((tip.topic_id, tip.partition))

    def leaves(self, told: "Told", node: "QuorumNode", stamps: list[Stamp]) -> None:
        """Batches have left a disk; validated when the turn is over, with the log start of then."""
        self._left.append((told, node, stamps))
        self._is_not_held(told, node)  # type: ignore[arg-type]

    def _is_not_held(self, told: "Told", node: "ReplicaNode") -> None:
        """What a leader has told a follower to begin at stays for a while."""
        broker = node.broker
        replicas = None if broker is None else broker.replicas
        partition = None if replicas is None else replicas.partitions.get(told.name)
        if partition is None:
            return
        start, log = told.copies[node.id].start, partition.log
        held_from = log.hold.kept_from(node.clock.wall_ms())
        if max(held_from, log.log_start_offset) < start:
            what = f"{node} begins at {start}, held from {held_from}"
            self._breaks("what is held for a follower stays", told, what)

    def after_turn(self) -> None:
        """Validate what has left, and what is to be deleted."""
        if self._left:
            left, self._left = self._left, []
            for told, node, stamps in left:
                self.dropped += len(stamps)
                for stamp in self._wanted(told, stamps):
                    if not self.holds(told, stamp):
                        what = f"{node} {stamp}"
                        self._breaks("what leaves a disk is FINISHED on its chain", told, what)
        if self._ended:
            ended, self._ended = self._ended, []
            for metadata in ended:
                self._is_not_needed(metadata)

    def _is_not_needed(self, metadata: RemoteLogSegmentMetadata) -> None:
        told = self.told_of(metadata)
        if told is None or told.is_pending:
            return
        spans = lineage.segment_spans(metadata)
        inside = [one for one in told.batches if any(_overlaps(one, span) for span in spans)]
        for stamp in self._wanted(told, inside):
            if not self.holds(told, stamp):
                self._breaks("no segment is deleted that is needed", told, f"{metadata} {stamp}")
        if not told.is_in_doubt:
            self._is_needed_by_nobody(told, metadata, inside)

    def _is_needed_by_nobody(
        self, told: "Told", metadata: RemoteLogSegmentMetadata, inside: list[Stamp]
    ) -> None:
        """Who leads next, with a lower log start, must not look for it."""
        world = self.world
        for member in (*told.image.isr, *told.image.elr):
            kept = world.nodes[member].log_start_on_disk(told.name)
            if kept is None or world.validator.is_hurt(member):
                continue
            for stamp in inside:
                if stamp.end > kept and not self.holds(told, stamp, kept):
                    what = f"n{member} begins at {kept}: {metadata} {stamp}"
                    self._breaks("no segment is deleted that a member needs", told, what)

    def _wanted(self, told: "Told", stamps: list[Stamp]) -> list[Stamp]:
        """Those that were told, and must not be lost; what stands for lost offsets has no epoch."""
        return [
            one
            for one in stamps
            if one.epoch >= 0
            and one.end > told.start_max
            and one.base < told.weak_from
            and told.has(one.base, one.epoch, one.crc)
        ]

    def holds(self, told: "Told", stamp: Stamp, log_start: int | None = None) -> bool:
        """Whether a batch lies in a FINISHED segment, from a log start on, or that of leaders."""
        return _holds(self._finished_of(told).values(), told, stamp, log_start)

    def _is_orphan(self, key: str) -> bool:
        """Whether an object is of a segment whose records were lost: an audit finds it."""
        parsed = parse_key(key)
        return parsed is not None and parsed.segment_id in self.orphans

    def _finished_of(self, told: "Told") -> dict[bytes, RemoteLogSegmentMetadata]:
        return self.finished.get(told.key, {})

    def _is_copied(self, metadata: RemoteLogSegmentMetadata) -> None:
        """FINISHED means that the objects are there, with the bytes that the leader wrote."""
        names, objects = object_names(metadata), self.world.remote_objects.objects
        for key in (names.log, names.indexes, names.manifest):
            if key not in objects:
                raise Violation("FINISHED means that all is in the store", f"{metadata}: no {key}")
        if not _is_whole(metadata, objects):
            raise Violation("FINISHED means that all is in the store", f"{metadata}: not all bytes")
        told = self.told_of(metadata)
        if told is None or told.is_pending:
            return
        if metadata.end_offset >= told.end and not told.gave_up:
            self._breaks("only what is committed is copied", told, f"{metadata}")
        batches = batches_of(metadata, objects)
        left = [one for one in batches if one.base_offset >= told.start_max]
        if wrong := wrong_state(metadata, left, objects):
            self._breaks("a copy knows epochs and producers as of its end", told, wrong)
        for header in batches:
            if header.base_offset < told.start_max or header.base_offset >= told.weak_from:
                continue
            known = told.written.get((header.base_offset, header.partition_leader_epoch))
            if known is None or known[0] != header.crc:
                self._breaks("a copy has what a leader wrote", told, f"{metadata} {header}")

    def begins_at(self, told: "Told", node: "QuorumNode", log_start: int) -> None:
        """A leader has this log start."""
        tier = self.world.plan.tier
        assert tier is not None
        if tier.retention_bytes < 0 and log_start > told.asked_start and not told.gave_up:
            what = f"{node} {log_start}, asked to {told.asked_start}"
            self._breaks("a log start moves only where somebody asks", told, what)

    def deletes_objects(self, node: "QuorumNode", metadata: RemoteLogSegmentMetadata) -> None:
        """A tier is about to delete the objects of a segment."""
        tip = metadata.id.topic_id_partition
        if metadata.id.id in self.finished.get((tip.topic_id, tip.partition), {}):
            what = f"{node} {metadata}"  # who calls takes an exception for the plugin's
            self.world.breaks("objects go only after DELETE_SEGMENT_STARTED", what)

    # -- at the end

    def unrest(self) -> str:
        """Why the tiers are not at rest; empty: they are."""
        world = self.world
        unfinished, left = list[RemoteLogSegmentMetadata](), set[str]()
        for metadata in self._unfinished.values():
            told = self.told_of(metadata)
            if told is None or not world.is_given_up(told):
                unfinished.append(metadata)
            else:  # nothing is copied or deleted until a person restores it
                left.update(_keys(metadata))
        if unfinished:
            return f"{len(unfinished)} segments such as {unfinished[0]}"
        wanted = {
            key
            for here in self.finished.values()
            for metadata in here.values()
            for key in _keys(metadata)
        }
        if removing := self._removing():
            return removing
        found = {one for one in world.remote_objects.segments() if not self._is_orphan(one)} - left
        if below := self._below_log_starts():
            return below
        if wanted != found:
            return f"missing {sorted(wanted - found)}, orphans {sorted(found - wanted)}"
        for node in world.brokers:
            broker = node.broker
            assert isinstance(broker, ReplicaSide)
            if broker.tier is None or broker.replicas is None:
                return f"{node} has no tier"
            state = broker.tier.state()
            hosted = sum(is_tiered(one.topic) for one in broker.replicas.partitions)
            if not state.assigned == state.ready == hosted:
                return f"{node} hosts {hosted} partitions, its tier says {state}"
            allowed = (END_LOST, *((OBJECT,) if world.remote_objects.lies.told else ()))
            reasons = [one for one in state.reasons if not any(text in one for text in allowed)]
            if state.process != "up" or reasons:
                return f"the tier of {node} is {state.process}: {reasons}"
        return self._too_much_local()

    def _removing(self) -> str:
        """What of deleted topics is still to be done; empty: nothing."""
        world, removed = self.world, self.world.validator.removed
        if world.workload.data.doomed.removing:
            return f"{world.workload.data.doomed.removing} is being deleted"
        for key, here in self.finished.items():
            if key[0] in removed and here:
                return (
                    f"{len(here)} segments of a deleted topic such as {next(iter(here.values()))}"
                )
        for key, state in self.removals.items():
            if state is not PartitionDeleteState.DELETE_PARTITION_FINISHED:
                return f"a deleted partition is in {state}: {key}"
        return ""

    def still_damaged(self) -> str:
        """What a leader has read well from end to end, and calls damaged or missing."""
        for told in self.world.validator.partitions.values():
            broker = self.world.nodes[told.image.leader].broker if told.image.leader >= 0 else None
            tier = None if broker is None else broker.tier
            if tier is None or not told.is_tiered or told.gave_up:
                continue
            for reason in tier.state().reasons:
                if reason.startswith(f"{told.name}{OBJECT}") and " its log " in reason:
                    return reason
        return ""

    def proved_end(self, told: "Told") -> int:
        """Above all offsets (exclusive) that segments prove which count after the last election."""
        known = [*self._finished_of(told).values(), *self._unfinished.values()]
        return max(
            (
                one.end_offset + 1
                for one in known
                if self.told_of(one) is told
                and one.segment_size_bytes
                and one.leader_epochs[-1].epoch >= told.since
            ),
            default=0,
        )

    def _below_log_starts(self) -> str:
        """Segments that nothing needs, by where the leader's log begins now."""
        for told in self.world.validator.partitions.values():
            if not told.is_tiered or self.world.is_given_up(told):
                continue
            start = self.world.nodes[told.image.leader].kept_log_start(told.name) or 0
            for metadata in self._finished_of(told).values():
                if metadata.end_offset < start:
                    return f"{told}: {metadata} is left below {start}"
        return ""

    def is_end_lost(self, told: "Told") -> bool:
        """Whether a person must begin it again: its leader has nothing, and its tier says so."""
        return self.is_restorable(told) or (
            bool(self._end_lost(told)) and not told.copies[told.image.leader].batches
        )

    def is_restorable(self, told: "Told") -> bool:
        """The same, where the store has some of it."""
        return any("restore-partition" in one for one in self._end_lost(told))

    def _end_lost(self, told: "Told") -> list[str]:
        broker = self.world.nodes[told.image.leader].broker if told.image.leader >= 0 else None
        tier = None if broker is None else broker.tier
        reasons = () if tier is None else tier.state().reasons
        return [one for one in reasons if one.startswith(f"{told.name}: {END_LOST}")]

    def _too_much_local(self) -> str:
        """Closed segments that a replica keeps though the topic wants none."""
        tier = self.world.plan.tier
        if tier is None or tier.local_bytes > 1:
            return ""
        for told in self.world.validator.partitions.values():
            if told.is_tiered and not self.world.is_given_up(told):
                for replica in told.image.replicas:
                    copy = told.copies[replica]
                    is_due = copy.bytes_above_first >= tier.local_bytes
                    wanted = self._wanted(told, copy.in_first)
                    # Its borders are its own: what its leader's active segment has may be in it.
                    if is_due and all(self.holds(told, stamp) for stamp in wanted):
                        return f"{told}: n{replica} keeps closed segments"
        return ""

    def validate_end(self) -> None:
        """All that was told is in the leader's log, or in the store with the same bytes."""
        for told in self.world.validator.partitions.values():
            if not told.is_tiered or self.world.is_given_up(told):
                continue
            kept = {one[:4] for one in told.copies[told.image.leader].batches}
            for metadata in self._finished_of(told).values():
                kept |= {
                    (one.base_offset, one.next_offset, one.partition_leader_epoch, one.crc)
                    for one in batches_of(metadata, self.world.remote_objects.objects)
                }
            for stamp in self._wanted(told, told.batches):
                if stamp[:4] not in kept:
                    self._breaks("nothing that was told is lost", told, f"{stamp}")

    def _breaks(self, rule: str, told: "Told", what: str) -> None:
        raise Violation(rule, f"{told}: {what}")


def _fold(partition: int, log: Sequence[StoredRecord]) -> Fold:
    """The first records of a metadata partition, as every tier takes them."""
    fold = Fold(MemoryStore(), partition)
    for offset, stored in enumerate(log):
        assert stored.value is not None
        fold.take(records.decode(stored.value), order=offset, seen_ms=0)
    return fold


def _holds(
    finished: Iterable[RemoteLogSegmentMetadata],
    told: "Told",
    stamp: Stamp,
    log_start: int | None = None,
) -> bool:
    """Whether a batch lies in one of the segments, from a log start on, or that of leaders."""
    first = max(stamp.base, told.start_max if log_start is None else log_start)
    return any(
        _is_in(stamp, span, first)
        for metadata in finished
        for span in lineage.segment_spans(metadata)
    )


def _is_in(stamp: Stamp, span: lineage.Span, first: int) -> bool:
    """Whether a batch is in, from an offset on: what lies below the log start is in no chain."""
    return stamp.epoch == span.epoch and span.first <= first and stamp.end - 1 <= span.last


def _overlaps(stamp: Stamp, span: lineage.Span) -> bool:
    return stamp.epoch == span.epoch and stamp.base <= span.last and stamp.end > span.first


def _is_whole(metadata: RemoteLogSegmentMetadata, objects: Mapping[str, bytes]) -> bool:
    """Whether objects that are there are those that the manifest tells of."""
    names = object_names(metadata)
    log, indexes = objects[names.log], objects[names.indexes]
    try:
        manifest = parse_manifest(objects[names.manifest])
    except DamagedObjectError:
        return False
    return (
        manifest.metadata.id == metadata.id
        and len(log) == metadata.segment_size_bytes
        and ObjectFacts(len(log), crc32c(log)) == manifest.log
        and ObjectFacts(len(indexes), crc32c(indexes)) == manifest.indexes
    )


def _keys(metadata: RemoteLogSegmentMetadata) -> tuple[str, str, str]:
    names = object_names(metadata)
    return names.log, names.indexes, names.manifest
