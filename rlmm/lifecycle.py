"""State transitions of segments and partitions, and the validation of records.

The topic's order is the truth. Each reader folds `apply` over the records of a user partition in
that order, so all readers have the same segments in the same states. Four rules are all needed
(docs/tiering.md):

* The fence. A record below the highest fence read so far changes nothing. A record raises the fence
  also where its transition is refused.
* The tables. A transition that they do not allow changes nothing.
* The validated state. DELETE_SEGMENT_STARTED of a segment that its writer saw in
  COPY_SEGMENT_STARTED changes nothing once the segment is finished.
* Barriers name no segment. A barrier's STARTED of an id that is forgotten changes nothing.

Pure. Invariant: `PartitionFacts.live_count` is the number of entries of the partition. Source:
KIP-405 (State transitions, Topic deletion lifecycle); the fence is ours.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, assert_never

from kafka_protocol.types import TopicIdPartition
from rlmm.api import (
    LOWEST_FENCE,
    REMOVER_FENCE,
    Fence,
    PartitionDeleteState,
    PartitionDeletion,
    PartitionHistory,
    SegmentHistory,
    SegmentUpdate,
)
from rlmm.events import MetadataEvent, PartitionDeleted, SegmentAdded, SegmentUpdated, Stamp
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState

T = TypeVar("T")

_set = object.__setattr__
_new = object.__new__

SEGMENT_TRANSITIONS: dict[SegmentState | None, frozenset[SegmentState]] = {
    None: frozenset({SegmentState.COPY_SEGMENT_STARTED}),
    SegmentState.COPY_SEGMENT_STARTED: frozenset(
        {
            SegmentState.COPY_SEGMENT_STARTED,
            SegmentState.COPY_SEGMENT_FINISHED,
            SegmentState.DELETE_SEGMENT_STARTED,
        }
    ),
    SegmentState.COPY_SEGMENT_FINISHED: frozenset(
        {SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED}
    ),
    SegmentState.DELETE_SEGMENT_STARTED: frozenset(
        {SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED}
    ),
}
"""From (None: unknown id) to. A segment in DELETE_SEGMENT_FINISHED is forgotten: its id is unknown
again."""

PARTITION_TRANSITIONS: dict[PartitionDeleteState | None, frozenset[PartitionDeleteState]] = {
    None: frozenset({PartitionDeleteState.DELETE_PARTITION_MARKED}),
    PartitionDeleteState.DELETE_PARTITION_MARKED: frozenset(
        {
            PartitionDeleteState.DELETE_PARTITION_MARKED,
            PartitionDeleteState.DELETE_PARTITION_STARTED,
        }
    ),
    PartitionDeleteState.DELETE_PARTITION_STARTED: frozenset(
        {
            PartitionDeleteState.DELETE_PARTITION_STARTED,
            PartitionDeleteState.DELETE_PARTITION_FINISHED,
        }
    ),
    PartitionDeleteState.DELETE_PARTITION_FINISHED: frozenset(
        {PartitionDeleteState.DELETE_PARTITION_FINISHED}
    ),
}

OffsetsByEpoch = tuple[tuple[int, int], ...]
"""(leader epoch, offset), epochs ascending and offsets falling."""

_CLOSED_TO = {SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED}


def changed(value: T, **changes: Any) -> T:
    """A copy of a frozen dataclass with slots and without `__post_init__`, some fields changed.

    Takes two thirds of the time of `dataclasses.replace`. Any: each field has its own type.
    """
    cls = type(value)
    made = _new(cls)
    for name in cls.__slots__:  # type: ignore[attr-defined] # of a dataclass with slots: its fields
        _set(made, name, changes[name] if name in changes else getattr(value, name))
    return made


class Verdict(Enum):
    """Outcome of a record."""

    ACCEPTED = "accepted"
    FENCED = "fenced"
    ILLEGAL_TRANSITION = "illegal transition"
    UNKNOWN_SEGMENT = "unknown segment"
    PARTITION_CLOSED = "partition closed"
    SEGMENTS_LEFT = "segments left"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Facts about a user partition, besides its segments.

    Attributes:
        topic_id_partition: The user partition.
        fence: The highest fence read.
        metadata_offset: The highest offset in `__cluster_metadata` at which a writer saw the topic,
            -1 if none.
        delete_state: Progress of its deletion, None while the topic exists. Never dropped: a late
            record of a deleted partition must still be refused.
        marked_seen_ms: Time at which this reader first read DELETE_PARTITION_MARKED (wall clock).
        live_count: Segments in any state but DELETE_SEGMENT_FINISHED.
        highest_epoch, log_starts, given_ends, unclean_epoch: See PartitionHistory. The remover's
            fence is no owner's.
    """

    topic_id_partition: TopicIdPartition
    fence: Fence = LOWEST_FENCE
    metadata_offset: int = -1
    delete_state: PartitionDeleteState | None = None
    marked_seen_ms: int | None = None
    live_count: int = 0
    highest_epoch: int = -1
    log_starts: OffsetsByEpoch = ()
    given_ends: OffsetsByEpoch = ()
    unclean_epoch: int = -1


def raised(known: OffsetsByEpoch, epoch: int, offset: int) -> OffsetsByEpoch:
    """Add that `epoch` has at least `offset`.

    In each rule, a value of an epoch holds for lower epochs too. So entries with a lower value than
    a later epoch's are dropped.
    """
    if len(known) == 1 and known[0][0] == epoch:  # nearly always
        return known if known[0][1] >= offset else ((epoch, offset),)
    if any(other >= epoch and far >= offset for other, far in known):
        return known
    kept = [(other, far) for other, far in known if other > epoch or far > offset]
    return tuple(sorted((*kept, (epoch, offset))))


def deletion_of(facts: PartitionFacts) -> PartitionDeletion:
    """The facts that the remover needs."""
    return PartitionDeletion(
        facts.topic_id_partition, facts.metadata_offset, facts.delete_state, facts.marked_seen_ms
    )


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A live segment, as this reader has it.

    Attributes:
        metadata: Its present state.
        started_seen_ms: Time at which this reader first read its STARTED (wall clock).
        finished_order: Offset in the metadata topic of its first accepted FINISHED; None before. A
            barrier that repeats FINISHED does not change it.
        named_under: Fence of its first accepted STARTED.
        finished_under: Fence of its first accepted FINISHED; None before.
    """

    metadata: RemoteLogSegmentMetadata
    started_seen_ms: int
    finished_order: int | None = None
    named_under: Fence = LOWEST_FENCE
    finished_under: Fence | None = None


def history_of(facts: PartitionFacts, entries: Iterable[SegmentEntry]) -> PartitionHistory:
    """The input of an owner's validation; `entries` ascend by start offset."""
    return PartitionHistory(
        MappingProxyType(dict(facts.log_starts)),
        MappingProxyType(dict(facts.given_ends)),
        facts.unclean_epoch,
        facts.highest_epoch,
        tuple(
            SegmentHistory(
                entry.metadata, entry.named_under, entry.finished_under, entry.finished_order
            )
            for entry in entries
        ),
    )


class Applied(NamedTuple):
    """A record's effect: the new facts, and the segment that it names.

    `entry` is None where the segment is not live, or none was named.
    """

    verdict: Verdict
    facts: PartitionFacts
    entry: SegmentEntry | None


def apply(
    facts: PartitionFacts,
    entry: SegmentEntry | None,
    event: MetadataEvent,
    *,
    order: int,
    seen_ms: int,
) -> Applied:
    """Validate one record at its place in the topic.

    Args:
        facts: Of the record's user partition, `PartitionFacts(partition)` if there were none.
        entry: Of the segment that the record names; None for an unknown id and for partition
            records.
        event: The record.
        order: Its offset in the metadata partition.
        seen_ms: Wall clock at the reading.

    Returns:
        The facts and the entry after the record. A refused record changes no entry. Of the facts it
            may change fence, metadata offset, highest epoch and, if it is not below the fence, the
            unclean election.
    """
    fence = event.stamp.fence
    seen = _seen(facts, event.stamp)
    if fence is not facts.fence and fence < facts.fence:
        return Applied(Verdict.FENCED, seen, entry)
    # This applies to refused transitions too. A barrier that is stale when it lands (model story
    # B1) still makes its writer an owner, and perhaps no other record carries its election.
    if event.stamp.unclean_epoch > facts.unclean_epoch:
        seen = changed(seen, unclean_epoch=event.stamp.unclean_epoch)
    applied = _validate(seen, entry, event, order=order, seen_ms=seen_ms)
    log_start = event.stamp.log_start
    if applied.verdict is not Verdict.ACCEPTED or log_start < 0:
        return applied
    log_starts = raised(facts.log_starts, fence.leader_epoch, log_start)
    if log_starts == facts.log_starts:
        return applied
    return applied._replace(facts=changed(applied.facts, log_starts=log_starts))


def _seen(facts: PartitionFacts, stamp: Stamp) -> PartitionFacts:
    """The facts after a record's stamp: mostly unchanged."""
    fence = stamp.fence
    if (
        (fence is facts.fence or fence == facts.fence)
        and stamp.metadata_offset <= facts.metadata_offset
        and fence.leader_epoch <= facts.highest_epoch
    ):
        return facts
    owner_epoch = -1 if fence == REMOVER_FENCE else fence.leader_epoch
    return changed(
        facts,
        fence=max(facts.fence, fence),
        metadata_offset=max(facts.metadata_offset, stamp.metadata_offset),
        highest_epoch=max(facts.highest_epoch, owner_epoch),
    )


def _validate(
    seen: PartitionFacts,
    entry: SegmentEntry | None,
    event: MetadataEvent,
    *,
    order: int,
    seen_ms: int,
) -> Applied:
    match event:
        case SegmentAdded():
            return _add(seen, entry, event, seen_ms)
        case SegmentUpdated():
            return _update(seen, entry, event, order)
        case PartitionDeleted():
            return _delete_partition(seen, event, seen_ms)
        case _:
            assert_never(event)


def _add(
    facts: PartitionFacts, entry: SegmentEntry | None, event: SegmentAdded, seen_ms: int
) -> Applied:
    present = None if entry is None else entry.metadata.state
    wanted = event.metadata.state
    if (
        wanted is not SegmentState.COPY_SEGMENT_STARTED
        or wanted not in SEGMENT_TRANSITIONS[present]
    ):
        return Applied(Verdict.ILLEGAL_TRANSITION, facts, entry)
    if facts.delete_state is not None:
        return Applied(Verdict.PARTITION_CLOSED, facts, entry)
    if entry is not None:
        return Applied(Verdict.ACCEPTED, facts, replace(entry, metadata=event.metadata))
    if event.is_barrier:
        # The segment is forgotten. Named again, its offsets would look assigned under the new fence
        # (F2).
        return Applied(Verdict.UNKNOWN_SEGMENT, facts, None)
    fence, ends = event.stamp.fence, facts.given_ends
    if event.metadata.segment_size_bytes > 0:  # else a barrier's own id: it names no offsets
        ends = raised(ends, fence.leader_epoch, event.metadata.end_offset + 1)
    return Applied(
        Verdict.ACCEPTED,
        changed(facts, live_count=facts.live_count + 1, given_ends=ends),
        SegmentEntry(event.metadata, started_seen_ms=seen_ms, named_under=fence),
    )


def _update(
    facts: PartitionFacts, entry: SegmentEntry | None, event: SegmentUpdated, order: int
) -> Applied:
    update = event.update
    if entry is None:
        return Applied(Verdict.UNKNOWN_SEGMENT, facts, None)
    if (
        update.state
        is SegmentState.COPY_SEGMENT_STARTED  # only a full record may set it, as in Kafka
        or update.state not in SEGMENT_TRANSITIONS[entry.metadata.state]
        or _was_validated_before_it_was_finished(update, entry)
    ):
        return Applied(Verdict.ILLEGAL_TRANSITION, facts, entry)
    if facts.delete_state is not None and update.state in _CLOSED_TO:
        return Applied(Verdict.PARTITION_CLOSED, facts, entry)
    if update.state is SegmentState.DELETE_SEGMENT_FINISHED:
        return Applied(Verdict.ACCEPTED, changed(facts, live_count=facts.live_count - 1), None)
    custom = update.custom_metadata
    metadata = changed(
        entry.metadata,
        state=update.state,
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        # DIFFERS: Kafka's reader drops it if an update does not repeat it; a plugin needs it for
        # the deletion.
        custom_metadata=entry.metadata.custom_metadata if custom is None else custom,
    )
    if update.state is SegmentState.COPY_SEGMENT_FINISHED and entry.finished_order is None:
        fence = event.stamp.fence
        after = changed(entry, metadata=metadata, finished_order=order, finished_under=fence)
    else:
        after = changed(entry, metadata=metadata)
    return Applied(Verdict.ACCEPTED, facts, after)


def _was_validated_before_it_was_finished(update: SegmentUpdate, entry: SegmentEntry) -> bool:
    """True if a copy that looked dangling is finished by now, and may be the only one left.

    The fence does not refuse its FINISHED if the topic lost the barrier (model finding F5).
    """
    return (
        update.state is SegmentState.DELETE_SEGMENT_STARTED
        and update.seen_state is SegmentState.COPY_SEGMENT_STARTED
        and entry.metadata.state is SegmentState.COPY_SEGMENT_FINISHED
    )


def _delete_partition(facts: PartitionFacts, event: PartitionDeleted, seen_ms: int) -> Applied:
    if event.state not in PARTITION_TRANSITIONS[facts.delete_state]:
        return Applied(Verdict.ILLEGAL_TRANSITION, facts, None)
    if event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED and facts.live_count:
        return Applied(Verdict.SEGMENTS_LEFT, facts, None)
    marked = seen_ms if facts.marked_seen_ms is None else facts.marked_seen_ms
    return Applied(
        Verdict.ACCEPTED, replace(facts, delete_state=event.state, marked_seen_ms=marked), None
    )
