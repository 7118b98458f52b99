"""The metadata topic and what is decided by it, with the code of the product, each thing once.

What the records of a prefix come to is a `View`; states hold its number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from kafka_protocol.types import EpochEntry, TopicIdPartition
from local_log.config import LogConfig
from local_log.log.retention_policy import RetentionFacts, SegmentFacts, decide
from rlm.link.messages import ClosedLocalSegment, LogDescription, PartitionSettings
from rlm.maintenance.copy_policy import next_to_copy
from rlm.maintenance.log_facts import LogFacts, RemoteSegment, finished_of
from rlm.maintenance.log_validation import Validated, validate_log
from rlm.maintenance.retention_policy import deletions
from rlmm.api import LOWEST_FENCE, Fence, SegmentUpdate
from rlmm.barrier import newest_of
from rlmm.events import MetadataEvent, SegmentAdded, SegmentUpdated, Stamp
from rlmm.lifecycle import PartitionFacts, SegmentEntry, apply, history_of
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from tests.model.replication.chains import Chain, Log, chain_of
from tests.model.tier.state import NONE, Record, Segment

PARTITION = TopicIdPartition(b"t" * 16, 0, "t")
STATES = {
    "S": SegmentState.COPY_SEGMENT_STARTED,
    "F": SegmentState.COPY_SEGMENT_FINISHED,
    "D": SegmentState.DELETE_SEGMENT_STARTED,
    "X": SegmentState.DELETE_SEGMENT_FINISHED,
}
KINDS = {state: kind for kind, state in STATES.items()}
LOCAL_CONFIG = LogConfig(remote_storage_enable=True, local_retention_ms=0)


@dataclass(frozen=True)
class View:
    """What a reader knows: entries ascending by id, FINISHED ones ranked by their order."""

    facts: PartitionFacts
    entries: tuple[tuple[int, SegmentEntry], ...]


_views: list[View] = [View(PartitionFacts(PARTITION), ())]
_numbers: dict[View, int] = {_views[0]: 0}
EMPTY = 0


def _number(view: View) -> int:
    ranks = {
        order: rank
        for rank, order in enumerate(
            sorted(
                entry.finished_order
                for _, entry in view.entries
                if entry.finished_order is not None
            )
        )
    }
    entries = tuple(
        (uid, replace(entry, finished_order=ranks[entry.finished_order]))
        if entry.finished_order is not None
        else (uid, entry)
        for uid, entry in view.entries
    )
    view = View(view.facts, entries)
    number = _numbers.setdefault(view, len(_views))
    if number == len(_views):
        _views.append(view)
    return number


def _segment_id(uid: int) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(PARTITION, bytes([uid]) * 16)


def _entries(chain: Chain) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch, start) for epoch, start in chain)


def known_chain(log: Log) -> Chain:
    """The chain of a log, or of a segment's index: from the first offset that is known."""
    return tuple(entry for entry in chain_of(log) if entry[0] > 0)


@cache
def metadata_of(uid: int, segment: Segment) -> RemoteLogSegmentMetadata:
    chain = known_chain(segment.index)
    own = tuple(
        (epoch, max(start, segment.first))
        for number, (epoch, start) in enumerate(chain)
        if number == len(chain) - 1 or chain[number + 1][1] > segment.first
    )
    return RemoteLogSegmentMetadata(
        _segment_id(uid), segment.first, segment.last, 0, 0, 0, 1, _entries(own)
    )


def _events(record: Record) -> list[MetadataEvent]:
    fence = Fence(record.epoch, record.incarnation)
    stamp = Stamp(fence, log_start=record.start, unclean_epoch=record.unclean)
    if record.kind == "N":
        name = _segment_id(255)
        nothing = RemoteLogSegmentMetadata(
            name, 0, 0, -1, 0, 0, 0, (EpochEntry(max(0, record.epoch), 0),)
        )
        ends = (SegmentUpdated(SegmentUpdate(name, STATES[kind], 0, 0), stamp) for kind in "DX")
        return [SegmentAdded(nothing, stamp), *ends]
    if record.kind == "S":
        assert record.segment is not None
        metadata = metadata_of(record.id, record.segment)
        return [SegmentAdded(metadata, stamp, is_barrier=record.is_barrier)]
    seen_state = STATES.get(record.validated)
    update = SegmentUpdate(_segment_id(record.id), STATES[record.kind], 0, 0, None, seen_state)
    return [SegmentUpdated(update, stamp)]


@cache
def read(number: int, record: Record, has_fence: bool = True, adds: bool = False) -> int:
    """What a view is after one more record; `adds`: also a barrier may name a segment again."""
    facts, entries = _views[number].facts, dict(_views[number].entries)
    if adds:
        record = record._replace(is_barrier=False)
    for event in _events(record):
        if not has_fence:
            facts = replace(facts, fence=LOWEST_FENCE)
        uid = 255 if record.kind == "N" else record.id
        done = apply(facts, entries.get(uid), event, order=1000, seen_ms=0)
        facts = done.facts
        if done.entry is None:
            entries.pop(uid, None)
        else:
            entries[uid] = done.entry
    return _number(View(facts, tuple(sorted(entries.items()))))


@cache
def states(number: int) -> dict[int, str]:
    """Live segments and their states."""
    return {uid: KINDS[entry.metadata.state] for uid, entry in _views[number].entries}


@cache
def segments(number: int) -> dict[int, Segment]:
    """Segments that are FINISHED."""
    return {uid: one for uid, one in live_segments(number).items() if states(number)[uid] == "F"}


@cache
def live_segments(number: int) -> dict[int, Segment]:
    return {
        uid: Segment(
            entry.metadata.start_offset, entry.metadata.end_offset, _epochs_of(entry.metadata)
        )
        for uid, entry in _views[number].entries
    }


def _epochs_of(metadata: RemoteLogSegmentMetadata) -> Log:
    epochs = [0] * (metadata.end_offset + 1)
    for entry in metadata.leader_epochs:
        epochs[entry.start_offset :] = [entry.epoch] * (
            metadata.end_offset + 1 - entry.start_offset
        )
    return tuple(epochs)


def holds(segment: Segment, epoch: int, offset: int) -> bool:
    return segment.first <= offset <= segment.last and segment.index[offset] == epoch


@cache
def fence(number: int) -> tuple[int, int]:
    now = _views[number].facts.fence
    return now.leader_epoch, now.incarnation


@cache
def newest(number: int) -> tuple[str, int, Segment | None]:
    """(state, id, segment if STARTED) of what a barrier repeats; ("N", 255, None): nothing."""
    entries = dict(_views[number].entries)
    found = newest_of(entry.metadata for entry in entries.values())
    if found is None:
        return "N", 255, None
    uid, kind = found.id.id[0], KINDS[found.state]
    return kind, uid, live_segments(number)[uid] if kind == "S" else None


# -- decisions


class PartlyCopied(LogFacts):
    """Without the rule that a segment counts as a copy only where it ends on the own chain."""

    @property
    def copies(self) -> list[RemoteSegment]:  # type: ignore[override] # a mutant
        return sorted(finished_of(self.remote), key=lambda it: it.finished_order or 0)


@cache
def _facts(
    number: int,
    epoch: int,
    log: Log,
    start: int,
    local: int,
    watermark: int,
    closed: Sequence[int] = (),
    whole: bool = True,
    unvalidated: int = NONE,
) -> LogFacts:
    """What the product decides by.

    Args:
        closed: bases of the closed segments, and where the last one ends.
        whole: a segment counts as a copy only where it ends on the chain below the watermark.
        unvalidated: where the log ended when it was taken over, if that was not validated; -1: it
            was.
    """
    below = min(start, watermark - 1 if unvalidated < 0 else min(watermark, unvalidated) - 1)
    known = tuple(of if at >= below else 0 for at, of in enumerate(log))
    chain = known_chain(known)
    if epoch and (not chain or chain[-1][0] < epoch):
        chain = (*chain, (epoch, len(log)))
    described = LogDescription(
        PARTITION.topic_id,
        0,
        epoch,
        start,
        True,
        local,
        watermark,
        watermark,
        list(chain),
        [ClosedLocalSegment(base, end - 1, end - base, 0) for base, end in pairwise(closed)],
        0,
        0,
        len(log),
        unvalidated_end=unvalidated,
    )
    remote = [
        RemoteSegment(entry.metadata, entry.finished_order) for _, entry in _views[number].entries
    ]
    remote.sort(key=lambda it: it.metadata.start_offset)
    return (LogFacts if whole else PartlyCopied)(described, remote)


@cache
def copied_through(
    number: int, log: Log, start: int, local: int, watermark: int, whole: bool
) -> tuple[int, int] | None:
    """(last offset, its epoch) of what is copied from the log start on."""
    run = _facts(number, 0, log, start, local, watermark, whole=whole).copied_through()
    return None if run is None else (run.last_offset, run.leader_epoch)


@cache
def stored_through(number: int, log: Log, start: int, local: int, watermark: int) -> int:
    """The last offset that is in the store, from the log start on; -1: none."""
    run = _facts(number, 0, log, start, local, watermark).stored_through()
    return NONE if run is None else run.last_offset


@cache
def to_copy(
    number: int,
    log: Log,
    start: int,
    local: int,
    watermark: int,
    whole: bool,
    closed: Sequence[int],
) -> Segment | None:
    facts = _facts(number, 0, log, start, local, watermark, closed, whole)
    found = next_to_copy(facts, PartitionSettings(), 1)
    if found is None:
        return None
    known = (0,) * start + log[start:]
    return Segment(found.base_offset, found.last_offset, known[: found.last_offset + 1])


@cache
def to_delete(
    number: int, log: Log, start: int, local: int, watermark: int, whole: bool, below: int
) -> int | None:
    """The first segment that is to go, by a log start that all in-sync replicas have."""
    facts = _facts(number, 0, log, start, local, watermark, whole=whole)
    due = deletions(facts, below, frozenset())
    return due[0].metadata.id.id[0] if due else None


@cache
def settled(
    number: int, epoch: int, log: Log, start: int, local: int, watermark: int, unvalidated: int
) -> int | str:
    """The log start that a new owner finds, or why it is unhealthy."""
    view = _views[number]
    facts = _facts(number, epoch, log, start, local, watermark, unvalidated=unvalidated)
    entries = sorted(view.entries, key=lambda it: it[1].metadata.start_offset)
    found = validate_log(facts.log, history_of(view.facts, (entry for _, entry in entries)))
    return found.log_start if isinstance(found, Validated) else str(found)


@cache
def to_expire(
    log_end: int, start: int, local: int, watermark: int, copied: int, closed: Sequence[int]
) -> bool:
    """Whether the first local segment goes."""
    bases = [*closed, log_end] if closed[-1] < log_end else list(closed)
    known = [SegmentFacts(base, end, 1, 0) for base, end in pairwise(bases)]
    if closed[-1] == log_end:
        known.append(SegmentFacts(log_end, log_end, 0, 0))
    facts = RetentionFacts(start, watermark, copied, 1)
    return len(known) > 1 and bool(decide(known, facts, LOCAL_CONFIG).drop)


@cache
def closed_segments(log_end: int, local: int, roll: int) -> tuple[int, ...]:
    """Bases of the closed segments of a log, and where the last one ends."""
    ends = [end for end in range(roll, log_end + 1, roll) if end > local]
    return (local, *ends)
