"""Log start and epoch chain of a new owner's log, validated before it serves or copies. Pure.

The order is that of the row "leader change" of docs/tiering.md §3: leader epoch, log end, epoch
chain, log start, hole. A missing file proves nothing. After a lost, old or contradictory file the
chain is read from the store, or the partition is unhealthy: then nothing of it is copied, raised or
deleted. Such a file never leads to a log start offset that was not ordered.

A fence *counts* if its leader epoch is not below the last unclean election: records of abandoned
lineages prove nothing about this one. Records without a fence (of Apache Kafka) prove no loss
either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_protocol.types import EpochEntry
from rlm.link.messages import LogDescription, Loss, Restoration
from rlm.maintenance.log_facts import LogFacts, RemoteSegment
from rlmm import lineage
from rlmm.api import Fence, PartitionHistory, SegmentHistory
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from runtime.health_reasons import HealthReason, HealthText


@dataclass(frozen=True, slots=True)
class Validated:
    """The log is sound and starts at `log_start`, perhaps still to be checkpointed."""

    log_start: int


@dataclass(frozen=True, slots=True)
class ChainLost:
    """The chain does not say under which epochs offsets below the local start were written.

    Attributes:
        problem: The defect.
        floor: The log start is not below this, as far as is known without the chain.
        sources: Finished segments whose LEADER_EPOCH index may say it.
    """

    problem: str
    floor: int
    sources: tuple[RemoteLogSegmentMetadata, ...]


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """A loss that needs a person, and its health reason with the remedy.

    Attributes:
        used: For a leader epoch that is too low: the highest that was used before.
        restoration: Where a log begins again that has lost all local records.
    """

    loss: Loss
    reason: HealthText
    used: int = -1
    restoration: Restoration | None = None


def validate_log(
    log: LogDescription, history: PartitionHistory
) -> Validated | ChainLost | Unhealthy:
    """Validate a log by its own state and by accepted records, after the barrier."""
    unhealthy = leader_epoch_too_low(log, history) or log_end_lost(log, history)
    if unhealthy is not None:
        return unhealthy
    lost = chain_lost(log, history)
    if lost is not None:
        return lost
    log_start = _log_start(log, history)
    if isinstance(log_start, Unhealthy):
        return log_start
    return _hole(log, history, log_start) or Validated(log_start)


def chain_of(log: LogDescription) -> list[EpochEntry]:
    """The chain as the broker sent it."""
    return [EpochEntry(epoch, start) for epoch, start in log.chain]


def local_chain(log: LogDescription) -> list[EpochEntry]:
    """The part that local batches confirm: from the local start on, its first entry clipped.

    Without a local batch, nothing confirms an epoch that began before the local start.
    """
    start, clipped = log.local_log_start_offset, list[EpochEntry]()
    is_empty = start >= log.log_end_offset
    for entry in chain_of(log):
        if entry.start_offset < start and is_empty:
            continue
        if entry.start_offset <= start:
            clipped = [EpochEntry(entry.epoch, start)]
        else:
            clipped.append(entry)
    return clipped


def counts(history: PartitionHistory, fence: Fence | None) -> bool:
    """True if a fence was written by a lineage that was not abandoned since."""
    return fence is not None and fence.leader_epoch >= history.last_unclean_epoch


def leader_epoch_too_low(log: LogDescription, history: PartitionHistory) -> Unhealthy | None:
    """Story H11: the cluster metadata are of an earlier time, so leader epochs were reused."""
    epochs = [history.highest_epoch, *(epoch for epoch, _ in log.chain)]
    return too_low(log.leader_epoch, max(epochs)) if max(epochs) > log.leader_epoch else None


def too_low(leader_epoch: int, used: int, in_vain: str = "") -> Unhealthy:
    """Unhealthy: `used` was used before. `in_vain`: why the controller gives none above it."""
    step = in_vain or "the controller is asked for a higher one"
    text = HealthReason.LEADER_EPOCH.text(leader_epoch=leader_epoch, used=used, step=step)
    return Unhealthy(Loss.LEADER_EPOCH, text, used)


def log_end_lost(log: LogDescription, history: PartitionHistory) -> Unhealthy | None:
    """Find offsets at or above this log's end that were assigned before, or with other records."""
    proved = lost_end(log, history)
    if not proved:
        return None
    restoration = restoration_of(log, history, proved)
    if restoration is not None:
        text = HealthReason.COPIES.text(offset=proved, begin=restoration.end)
        return Unhealthy(Loss.LOG_END, text, restoration=restoration)
    # Where local records differ from the remote ones, adoption begins above both.
    begin = max(proved, log.log_end_offset + 1)
    text = HealthReason.LOG_END.text(offset=proved, log_end=log.log_end_offset, begin=begin)
    return Unhealthy(Loss.LOG_END, text)


def lost_end(log: LogDescription, history: PartitionHistory) -> int:
    """End (exclusive) of the offsets that were assigned and are missing here; 0 if none is proved.

    A segment is closed and fsynced before its first record, and a log start offset is at or below
    the high watermark. So the offsets below both were here, under the leader epoch of the record's
    fence or an earlier one. Produce does not wait for this validation. So records that were
    appended under a later epoch, or since the log was opened, do not replace lost ones (stories H3,
    H6).

    An unclean election abandons the records that the new leader lacks. A leader without any record
    lacks those in the store: it has no lineage to continue, and would assign offsets again. Once an
    owner since that election has settled, and carries a log start, there is such a lineage.
    """
    if _has_nothing(log, history) and not _has_settled(history):
        history = replace(history, last_unclean_epoch=-1)
    proofs = [end for _, end in given_otherwise(log, history)]
    return max([finished_otherwise(log, history), *proofs])


def restoration_of(
    log: LogDescription, history: PartitionHistory, proved: int
) -> Restoration | None:
    """Where a log begins again that held nothing when it was opened.

    None: it held something, or no finished segment is left.

    The newest finished segment carries the epoch chain and the producers as of its end. Newest is
    by leader epoch first: an abandoned lineage may reach higher.

    Args:
        log: The local log.
        history: Facts of accepted records.
        proved: Result of `lost_end`.
    """
    ends = [
        (spans[-1].epoch, segment.metadata.end_offset + 1)
        for segment in history.segments
        if _is_finished(segment.metadata) and (spans := lineage.segment_spans(segment.metadata))
    ]
    if not _has_nothing(log, history) or not ends:
        return None
    epoch, begin = max(ends)
    given = min(history.highest_epoch, log.leader_epoch - 1)
    return Restoration(begin, epoch, max(proved, begin), max(given, epoch))


def _has_nothing(log: LogDescription, history: PartitionHistory) -> bool:
    """True if the log held no record when it was opened, or uncleanly elected, and never settled.

    A log whose records were all deleted keeps the epoch of its last record in its chain when it is
    opened. Its own epoch, and those of records appended since, begin at that end. Records that it
    took before it was validated are still there at the next opening. Then its chain begins at
    offset 0, and not before the election.
    """
    if log.chain and history.last_unclean_epoch >= 0 and not _has_settled(history):
        epoch, start = log.chain[0]
        if start == 0 and epoch >= history.last_unclean_epoch:
            return True
    end = min(end for end in (log.log_end_offset, log.unvalidated_end) if end >= 0)
    is_empty = end <= log.log_start_offset == log.local_log_start_offset
    return is_empty and all(start >= end for _, start in log.chain)


def _has_settled(history: PartitionHistory) -> bool:
    """True if an owner since the last unclean election has settled and carried a log start."""
    return any(epoch >= history.last_unclean_epoch for epoch in history.log_starts)


def given_otherwise(log: LogDescription, history: PartitionHistory) -> list[tuple[int, int]]:
    """(first, end) of offsets that were assigned, and are missing here or hold other records.

    The proof is in records that owners wrote before a copy was finished.
    """
    found, local = [], local_chain(log)
    for ends in (history.given_ends, history.log_starts):
        for epoch, end in ends.items():
            first = _end_of(epoch, local, log)
            if epoch >= max(0, history.last_unclean_epoch) and end > first:
                found.append((first, end))
    for segment in history.segments:
        if _names(log, history, segment) and contradicts(segment.metadata, local, log):
            found.append((segment.metadata.start_offset, segment.metadata.end_offset + 1))
    return found


def finished_otherwise(log: LogDescription, history: PartitionHistory) -> int:
    """The end (exclusive) of finished segments with other records than the local ones; 0: none."""
    local = local_chain(log)
    return max(
        (
            segment.metadata.end_offset + 1
            for segment in history.segments
            if _proves(history, segment) and contradicts(segment.metadata, local, log)
        ),
        default=0,
    )


def _end_of(epoch: int, local: Sequence[EpochEntry], log: LogDescription) -> int:
    """End (exclusive) of the offsets that this log has of leader epochs up to `epoch`.

    Each incarnation of a broker leads under a higher epoch. Its chain notes the epoch at the log
    end before anything is appended, and its batches carry it.
    """
    ends = [log.log_end_offset]
    if log.unvalidated_end >= 0:
        ends.append(log.unvalidated_end)
    if epoch > log.adopted_epoch:
        ends += [entry.start_offset for entry in local if entry.epoch > epoch]
    return min(ends)


def _names(log: LogDescription, history: PartitionHistory, segment: SegmentHistory) -> bool:
    """True if an unfinished segment proves which leader epochs its offsets were given under."""
    epoch = segment.named_under.leader_epoch
    return (
        epoch > log.adopted_epoch
        and counts(history, segment.named_under)
        and not segment.is_placeholder
        and not _is_finished(segment.metadata)
    )


def contradicts(
    segment: RemoteLogSegmentMetadata, local: Sequence[EpochEntry], log: LogDescription
) -> bool:
    """True if the segment and a local batch have another epoch at the same offset.

    The chain does not cover offsets before its first entry, although local batches may be there.
    These are below the log start, or in an adopted gap. The batch of such a gap has no epoch, so a
    chain that was rebuilt from batches lacks it.
    """
    begins = local[0].start_offset if local else log.log_end_offset
    first = max(log.local_log_start_offset, begins)
    return _leaves_off(local, lineage.segment_spans(segment), first, log.log_end_offset)


def _leaves_off(
    chain: Sequence[EpochEntry], spans: Sequence[lineage.Span], first: int, end: int
) -> bool:
    """True if an (epoch, offset) of the spans within [first, end) is not on the chain."""
    own = {span.epoch: span for span in lineage.chain_spans(chain, end)}
    for span in spans:
        low, high = max(span.first, first), min(span.last, end - 1)
        if low > high:
            continue
        on_chain = own.get(span.epoch)
        if on_chain is None or on_chain.first > low or on_chain.last < high:
            return True
    return False


def chain_lost(log: LogDescription, history: PartitionHistory) -> ChainLost | None:
    """The defect if the chain is not provably whole from the log start on, else None.

    From the local start on the broker has compared it with the batches.
    """
    floor = _floor(log, history)
    if floor >= log.local_log_start_offset:
        return None
    problem = log.chain_problem or problem_of(chain_of(log), floor, log, history)
    return ChainLost(problem, floor, _sources(log, history)) if problem else None


def problem_of(
    chain: Sequence[EpochEntry], floor: int, log: LogDescription, history: PartitionHistory
) -> str:
    """The defect of a chain below the local start; "" if none is known."""
    begins = chain[0].start_offset if chain else log.log_end_offset
    if log.log_start_known and begins > floor:
        return f"it begins at {begins}, the log at {floor}"
    for segment in history.segments:
        spans = lineage.segment_spans(segment.metadata)
        is_left_off = _leaves_off(chain, spans, floor, log.local_log_start_offset)
        if is_left_off and _proves(history, segment):
            where = segment.metadata.start_offset
            return f"it leaves off offsets of the remote segment from offset {where} on"
    return ""


def _proves(history: PartitionHistory, segment: SegmentHistory) -> bool:
    """True if records in the segment that this log lacks prove a loss."""
    fence = segment.finished_under
    is_paired = fence is not None and fence.leader_epoch >= 0
    return is_paired and _is_finished(segment.metadata) and counts(history, fence)


def _is_finished(segment: RemoteLogSegmentMetadata) -> bool:
    return segment.state is SegmentState.COPY_SEGMENT_FINISHED


def _floor(log: LogDescription, history: PartitionHistory) -> int:
    """A lower bound of the log start that needs no chain below the local start."""
    local = local_chain(log)
    carried = {
        epoch: offset
        for epoch, offset in history.log_starts.items()
        if local and local[0].epoch <= epoch
    }
    known = _carried(carried, local)
    if log.log_start_known:
        known.append(log.log_start_offset)
    elif not history.log_starts and _began_local(log, history):
        known.append(log.local_log_start_offset)
    return max([*known, 0])


def _began_local(log: LogDescription, history: PartitionHistory) -> bool:
    """True if tiering began with this local start: the checkpoint is sound and has no entry (H9).

    A tiered log gets its entry before its first local segment goes.
    """
    return log.log_start_has_no_entry and not any(
        _is_finished(segment.metadata)
        and segment.metadata.start_offset < log.local_log_start_offset
        for segment in history.segments
    )


def _carried(log_starts: Mapping[int, int], chain: Sequence[EpochEntry]) -> list[int]:
    """How far each carried log start counts: to where an epoch above its own begins (story H1)."""
    return [
        min([offset, *(entry.start_offset for entry in chain if entry.epoch > epoch)])
        for epoch, offset in log_starts.items()
    ]


def _sources(
    log: LogDescription, history: PartitionHistory
) -> tuple[RemoteLogSegmentMetadata, ...]:
    """Finished segments that reach the offset before the local start and fit what is here (H5)."""
    local, last_remote = local_chain(log), log.local_log_start_offset - 1
    found = []
    for segment in history.segments:
        metadata = segment.metadata
        if not _is_finished(metadata) or not counts(history, segment.finished_under):
            continue
        at_the_seam = [
            span.epoch
            for span in lineage.segment_spans(metadata)
            if span.first <= last_remote <= span.last
        ]
        falls = at_the_seam and local and at_the_seam[0] > local[0].epoch
        if at_the_seam and not falls and not contradicts(metadata, local, log):
            found.append(metadata)
    return tuple(found)


def _facts(log: LogDescription, history: PartitionHistory) -> LogFacts:
    return LogFacts(log, [RemoteSegment(s.metadata, s.finished_order) for s in history.segments])


def _log_start(log: LogDescription, history: PartitionHistory) -> int | Unhealthy:
    """The highest of this log's checkpoint and the carried offsets; the row "log start unknown"."""
    local_start = log.local_log_start_offset
    known = _carried(history.log_starts, chain_of(log))
    if log.log_start_known:
        known.append(log.log_start_offset)
    if known:
        return max(known)
    if local_start == 0:
        return 0
    if _began_local(log, history):
        return local_start
    facts = _facts(log, history)
    run = start_of_run(facts)
    # A segment below the whole chain may be of an abandoned lineage or of this one: a chain that
    # begins too high shows neither.
    is_below = bool(facts.chain) and any(
        segment.start_offset < facts.chain[0].start_offset for segment in facts.finished
    )
    if run is not None and facts.remote_start == run and not is_below:
        return run
    return Unhealthy(Loss.LOG_START, HealthReason.LOG_START.text(offset=local_start))


def start_of_run(facts: LogFacts) -> int | None:
    """The lowest offset from which finished segments on the chain run up to the local start."""
    parts = sorted(
        (part for segment in facts.finished for part in facts.on_chain(segment)),
        key=lambda part: part.last,
        reverse=True,
    )
    reached = facts.log.local_log_start_offset
    for part in parts:
        if part.last + 1 >= reached:
            reached = min(reached, part.first)
    return reached if reached < facts.log.local_log_start_offset else None


def _hole(log: LogDescription, history: PartitionHistory, log_start: int) -> Unhealthy | None:
    facts = _facts(log, history)
    return None if facts.hole(log_start) is None else hole_of(facts)


def hole_of(facts: LogFacts) -> Unhealthy:
    """The health reason of offsets from the log start on that are in no tier: metadata was lost."""
    # With an unknown log start the broker refuses DeleteRecords below the local one.
    above = start_of_run(facts) if facts.log.log_start_known else None
    above = facts.log.local_log_start_offset if above is None else above
    return Unhealthy(Loss.HOLE, HealthReason.HOLE.text(offset=above))
