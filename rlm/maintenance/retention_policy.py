"""Decides the log start offset, and the remote segments to delete. Pure.

Order is part of the answer. The log start offset moves, and is durable, before segments below it
are deleted. Deletions are in offset order.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from rlm.link.messages import LogDescription, PartitionSettings
from rlm.maintenance.log_facts import LogFacts
from rlmm import lineage
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState


@dataclass(frozen=True, slots=True)
class MoveLogStart:
    """Move the log start offset to `offset`, for `reason` (a reason of `RaiseLogStart`)."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """A remote segment to be deleted, and the reason."""

    metadata: RemoteLogSegmentMetadata
    reason: str


def log_start_by_retention(
    facts: LogFacts, settings: PartitionSettings, now_ms: int
) -> MoveLogStart | None:
    """The log start offset that total retention demands; None: the present one.

    Time and size act on both tiers together. Only finished segments on the epoch chain count, and
    only stored offsets expire: a segment that waits to be copied is never expired, however old.
    Bytes that are in both tiers count once. If copying is off, and nothing is stored from the log
    start offset on, local segments expire.
    """
    log = facts.log
    if settings.mode == "drop":
        # An in-sync replica may lead next, and has only records above its own log start offset.
        start = max(log.local_log_start_offset, log.members_highest_log_start)
        start = min(start, log.high_watermark)
        return MoveLogStart(start, "drop") if start > log.log_start_offset else None
    run = facts.stored_through()
    if run is None:
        return _of_local_segments(facts, settings, now_ms)
    excess = _excess_bytes(facts, run.last_offset, settings.retention_bytes)
    start, reason = log.log_start_offset, ""
    for segment, share in _shares(facts):
        end = _end_on_chain(facts, segment, start)
        if end <= start:
            continue
        if share <= excess:
            excess -= share
            start, reason = end, "size"
        elif _is_too_old(segment, settings.retention_ms, now_ms):
            excess -= share
            start, reason = end, "time"
        else:
            break
    start = min(start, run.last_offset + 1)
    return MoveLogStart(start, reason) if start > log.log_start_offset else None


def _of_local_segments(
    facts: LogFacts, settings: PartitionSettings, now_ms: int
) -> MoveLogStart | None:
    """The same for a log without copies whose copying is off: else its disk would fill.

    A segment whose records have no timestamp expires by size alone.
    """
    if settings.mode != "read_only" or _run_segments(facts):
        return None
    log = facts.log
    closed = [each for each in log.closed_segments if each.last_offset >= log.log_start_offset]
    below = log.closed_segments[: len(log.closed_segments) - len(closed)]
    bytes_below = log.closed_bytes_below + sum(each.size_bytes for each in below)
    bound = settings.retention_bytes
    excess = -1 if bound < 0 else log.local_bytes - bytes_below - bound
    start, reason = log.log_start_offset, ""
    for segment in closed:
        age_ms = now_ms - segment.max_timestamp_ms
        if segment.last_offset >= log.high_watermark:
            break
        if segment.size_bytes <= excess:
            reason = "size"
        elif 0 <= settings.retention_ms < age_ms and segment.max_timestamp_ms >= 0:
            reason = "time"
        else:
            break
        excess -= segment.size_bytes
        start = segment.last_offset + 1
    return MoveLogStart(start, reason) if reason else None


def _run_segments(facts: LogFacts) -> list[RemoteLogSegmentMetadata]:
    given_up = _superseded(facts)
    return [
        segment
        for segment in facts.finished
        if segment.end_offset >= facts.log.log_start_offset
        and segment.id not in given_up
        and facts.on_chain(segment)
    ]


def _shares(facts: LogFacts) -> list[tuple[RemoteLogSegmentMetadata, int]]:
    """The segments, each with the bytes of the offsets that no earlier one holds.

    Leaders close their segments at different offsets: after a change of leader two segments may
    overlap in part.
    """
    earlier, shares = lineage.Coverage(), []
    for segment in _run_segments(facts):
        held = new = 0
        for part in facts.on_chain(segment):
            held += part.last - part.first + 1
            new += part.last - part.first + 1 - earlier.count_in(part)
            earlier.add_span(part)
        shares.append((segment, segment.segment_size_bytes * new // held))
    return shares


def _end_on_chain(facts: LogFacts, segment: RemoteLogSegmentMetadata, start: int) -> int:
    """First offset after the part of the segment that is on the chain and touches `start`."""
    reached = start
    for part in facts.on_chain(segment):
        if part.first > reached:
            break
        reached = max(reached, part.last + 1)
    return reached


def _is_too_old(segment: RemoteLogSegmentMetadata, retention_ms: int, now_ms: int) -> bool:
    return retention_ms >= 0 and now_ms - segment.max_timestamp_ms > retention_ms


def _excess_bytes(facts: LogFacts, copied_last: int, retention_bytes: int) -> int:
    """Bytes of both tiers together above the bound; negative if below."""
    if retention_bytes < 0:
        return -1
    remote = sum(share for _, share in _shares(facts))
    return remote + facts.log.local_bytes - _bytes_in_both(facts.log, copied_last) - retention_bytes


def _bytes_in_both(log: LogDescription, copied_last: int) -> int:
    """Local bytes that are also remote. A partly copied segment counts whole: less expires then.

    Another leader may have closed its segments at other offsets. And the log is described before
    the remote segments are listed: in between its active segment may have been closed and copied.
    """
    closed_last = max(log.closed_from, log.local_log_start_offset) - 1
    if log.closed_segments:
        closed_last = max(closed_last, log.closed_segments[-1].last_offset)
    if copied_last > closed_last:
        return log.local_bytes
    in_both = log.closed_bytes_below if log.closed_from <= copied_last + 1 else 0
    return in_both + sum(
        segment.size_bytes for segment in log.closed_segments if segment.base_offset <= copied_last
    )


def _superseded(facts: LogFacts) -> set[RemoteLogSegmentId]:
    copies = (segment.metadata for segment in facts.copies)
    return {segment.id for segment in lineage.superseded(copies)}


def deletions(facts: LogFacts, log_start: int, own_copies: AbstractSet[bytes]) -> list[Deletion]:
    """The segments to delete now, in offset order.

    Args:
        facts: Of this pass.
        log_start: The durable log start offset.
        own_copies: Ids of copies that this tier is running: their STARTED is not dangling.

    A segment that is not wholly on the epoch chain is kept until it is wholly below the log start
    offset: its lineage may return.
    """
    given_up = _superseded(facts)
    found = []
    for segment in sorted(
        (remote.metadata for remote in facts.remote),
        key=lambda metadata: (metadata.start_offset, metadata.id.id),
    ):
        if segment.state is SegmentState.DELETE_SEGMENT_STARTED:
            found.append(Deletion(segment, "begun"))
        elif segment.state is SegmentState.COPY_SEGMENT_STARTED:
            if segment.id.id not in own_copies:
                found.append(Deletion(segment, "dangling"))
        elif segment.end_offset < log_start:
            found.append(Deletion(segment, "below log start"))
        elif segment.id in given_up:
            found.append(Deletion(segment, "overlap"))
    return found


def deletion_is_due(started_seen_ms: int, now_ms: int, copy_max_ms: int) -> bool:
    """True if no PUT of that id can land any more: DELETE_SEGMENT_FINISHED may be written."""
    return now_ms - started_seen_ms > copy_max_ms
