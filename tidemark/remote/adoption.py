"""The target of a log whose end or epoch chain is lost: the deciding of `remote adopt`. Pure.

Log end: no offset that was given is given again, so the log ends at the highest offset that is
proved to have been given, or above. What finished segments hold stays readable: where they continue
beyond the local end, the log begins again where they end, and the local segments, whose offsets
they hold too, are set aside. Else the local segments stay, also where other records, lost since,
had their offsets before. What neither tier holds is a gap. What was given until then is remembered
as adopted.

Chain: the epochs that the named index tells, then those of the metadata records above it, then
those of the local batches. The rules of the tier validate the result before anything is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import EpochEntry
from local_log.recovery.acceptance import Adopted
from local_log.recovery.inspection import Inspection
from rlm.link.messages import LogDescription
from rlm.maintenance.log_validation import (
    chain_lost,
    chain_of,
    counts,
    finished_otherwise,
    given_otherwise,
    local_chain,
    lost_end,
    problem_of,
    restoration_of,
)
from rlmm import lineage
from rlmm.api import PartitionHistory
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState


class AdoptRefusedError(TidemarkError):
    """Nothing was changed, and why."""


@dataclass(frozen=True, slots=True)
class EndAdoption:
    """The remedy of a lost log end.

    Attributes:
        adopted: what the next start makes.
        gap: (first, end) of offsets that neither tier holds, end exclusive; empty where equal.
        given_up: (first, end) of local offsets whose records are set aside and not served.
        epoch: the highest leader epoch used before: what was given under it is adopted, too.
        doubled: (first, end) of local offsets that stay although others were given there before.
    """

    adopted: Adopted
    gap: tuple[int, int]
    given_up: tuple[int, int]
    epoch: int
    doubled: tuple[int, int]


def described(
    found: Inspection, topic_id: bytes, of_batches: Sequence[EpochEntry]
) -> LogDescription:
    """The log as the tier will see it after the next start.

    Args:
        found: its files.
        topic_id: of its topic.
        of_batches: the chain that its batches tell, taken where that on the disk is none.

    Raises:
        AdoptRefusedError: the next start would refuse it.
    """
    topic, partition = found.partition
    if found.is_refused:
        raise AdoptRefusedError(
            f"{topic}-{partition} is offline for another reason: see `tidemark log inspect`"
        )
    plan, survey = found.plan, found.survey
    kept = [one for one in survey.segments if one.base_offset not in plan.aside]
    chain = of_batches if plan.chain is None else plan.chain
    return LogDescription(
        topic_id,
        partition,
        0,
        log_start_offset=plan.log_start,
        log_start_known=plan.log_start_known,
        local_log_start_offset=max(plan.log_start, kept[0].base_offset if kept else plan.log_end),
        last_stable_offset=plan.log_end,
        high_watermark=plan.log_end,
        chain=[(entry.epoch, entry.start_offset) for entry in chain],
        closed_segments=[],
        local_bytes=0,
        metadata_offset=0,
        log_end_offset=plan.log_end,
        chain_problem=plan.chain_lost,
        adopted_epoch=survey.accepted.adopted_epoch,
    )


def adopt_end(
    log: LogDescription, history: PartitionHistory, asked: int | None = None
) -> EndAdoption:
    """Decide where the log is to begin and end.

    Args:
        log: as it is here.
        history: what accepted records say.
        asked: the end that a person wants; None: the lowest that is safe.

    Raises:
        AdoptRefusedError: no end is lost, `asked` is too low, or records contradict each other.
    """
    proved = lost_end(log, history)
    if not proved and asked is None:
        raise AdoptRefusedError("its log end is not lost: there is nothing to adopt")
    if restoration_of(log, history, proved) is not None:
        raise AdoptRefusedError(
            "it has no local record: start the broker, then `tidemark remote restore-partition`"
        )
    here = log.log_end_offset
    # Other records than the remote ones are here: an end above both tells that it was adopted.
    lowest = max(proved, here + 1)
    end = lowest if asked is None else asked
    if end < lowest:
        raise AdoptRefusedError(f"offsets below {lowest} were given: the end cannot be {end}")
    spans = _run(log, history)
    reached = spans[-1].last + 1 if spans else log.local_log_start_offset
    is_foreign = finished_otherwise(log, history) > 0
    if reached > here or (is_foreign and spans):
        begin, first = reached, spans[0].first
        differs = _differs_from(log, spans)
        given_up = (reached, max(here, reached)) if differs is None else (differs, here)
    else:
        begin, first, given_up = None, here, (here, here)
    below = [entry for entry in chain_of(log) if entry.start_offset < first]
    if (
        begin is not None
    ):  # what later incarnations appended below the log start goes with their segments
        below = [entry for entry in below if entry.epoch <= spans[0].epoch]
    chain = _continued(below, _finished_spans(history), first, end)
    adopted = Adopted(begin, end, tuple(chain))
    epoch = max([history.highest_epoch, *(entry.epoch for entry in chain_of(log))])
    _check(log, history, adopted, epoch)
    doubled = (here, here) if begin is not None else _doubled(log, history)
    gap = (reached if begin is not None else here, end)
    return EndAdoption(adopted, gap, given_up, epoch, doubled)


def _check(
    log: LogDescription, history: PartitionHistory, adopted: Adopted, adopted_epoch: int
) -> None:
    """Validate the log that would be made by the rules of the tier."""
    local_start = log.local_log_start_offset if adopted.begin is None else adopted.begin
    made = LogDescription(
        log.topic_id,
        log.partition,
        log.leader_epoch,
        log_start_offset=log.log_start_offset,
        log_start_known=log.log_start_known,
        local_log_start_offset=local_start,
        last_stable_offset=adopted.end,
        high_watermark=adopted.end,
        chain=[(entry.epoch, entry.start_offset) for entry in adopted.chain],
        closed_segments=[],
        local_bytes=0,
        metadata_offset=0,
        log_end_offset=adopted.end,
        log_start_has_no_entry=log.log_start_has_no_entry,
        chain_problem=log.chain_problem,
        adopted_epoch=adopted_epoch,
    )
    if lost_end(made, history):
        raise AdoptRefusedError(
            "the finished remote segments contradict each other or the records here: no end of "
            "the log fits all of them; bring back the right directory"
        )


def _doubled(log: LogDescription, history: PartitionHistory) -> tuple[int, int]:
    """Local offsets that other records may have had before, which are lost."""
    start, here = log.local_log_start_offset, log.log_end_offset
    found = [(max(first, start), min(end, here)) for first, end in given_otherwise(log, history)]
    found = [(first, end) for first, end in found if first < end]
    if not found:
        return here, here
    return min(first for first, _ in found), max(end for _, end in found)


def _finished_spans(history: PartitionHistory) -> list[lineage.Span]:
    """The offsets of finished segments of no given up lineage, ascending."""
    spans = [
        span
        for segment in history.segments
        if segment.metadata.state is SegmentState.COPY_SEGMENT_FINISHED
        and counts(history, segment.finished_under)
        for span in lineage.segment_spans(segment.metadata)
    ]
    return sorted(spans, key=lambda span: (span.first, span.epoch))


def _run(log: LogDescription, history: PartitionHistory) -> list[lineage.Span]:
    """Finished offsets without a hole, from the local start or the log start on: what goes higher.

    An older copy begins below what retention has left in the store since.
    """
    carried = [
        offset
        for epoch, offset in history.log_starts.items()
        if epoch >= history.last_unclean_epoch
    ]
    own = log.log_start_offset if log.log_start_known else 0
    starts = (log.local_log_start_offset, max([log.local_log_start_offset, own, *carried]))
    runs = (_run_from(start, log.local_log_start_offset, history) for start in starts)
    return max(runs, key=lambda run: run[-1].last if run else -1)


def _run_from(start: int, lowest: int, history: PartitionHistory) -> list[lineage.Span]:
    run: list[lineage.Span] = []
    reached = start
    for span in _finished_spans(history):
        falls = run and span.epoch < run[-1].epoch
        if span.first <= reached <= span.last and not falls:
            run.append(span._replace(first=reached if run else max(span.first, lowest)))
            reached = span.last + 1
    return run


def _differs_from(log: LogDescription, run: Sequence[lineage.Span]) -> int | None:
    """The first local offset that holds another record than the finished segments do."""
    return min(
        (
            max(here.first, span.first)
            for here in lineage.chain_spans(local_chain(log), log.log_end_offset)
            for span in run
            if here.epoch != span.epoch and here.first <= span.last and span.first <= here.last
        ),
        default=None,
    )


def _continued(
    below: Sequence[EpochEntry], spans: Sequence[lineage.Span], first: int, end: int
) -> list[EpochEntry]:
    """A chain, and what spans say of the offsets [first, end)."""
    chain = list(below)
    for span in spans:
        start = max(span.first, first)
        if start <= min(span.last, end - 1) and (not chain or span.epoch > chain[-1].epoch):
            chain.append(EpochEntry(span.epoch, start))
    return chain


def adopt_chain(
    log: LogDescription,
    history: PartitionHistory,
    source: RemoteLogSegmentMetadata,
    index: Sequence[EpochEntry],
) -> list[EpochEntry]:
    """The chain by the LEADER_EPOCH index of the segment that a person named.

    Raises:
        AdoptRefusedError: the chain is not lost, or the index contradicts its own record, other
            segments or what is here.
    """
    if lost_end(log, history):
        raise AdoptRefusedError("its log end is lost: adopt that first, without --segment")
    lost = chain_lost(log, history)
    if lost is None:
        raise AdoptRefusedError("its chain is not lost: there is nothing to adopt")
    told = [EpochEntry(*entry) for entry in index]
    if not told or any(
        lineage.epoch_at(told, offset) != span.epoch
        for span in lineage.segment_spans(source)
        for offset in (span.first, span.last)
    ):
        raise AdoptRefusedError("the index of that segment contradicts its own record")
    local_start, end = log.local_log_start_offset, source.end_offset + 1
    below = [entry for entry in told if entry.start_offset < min(local_start, end)]
    chain = _continued(below, _finished_spans(history), end, local_start)
    local = local_chain(log)
    if local and chain and local[0].epoch == chain[-1].epoch:
        local = local[1:]
    chain += local
    if any(
        one.epoch >= other.epoch or one.start_offset >= other.start_offset
        for one, other in pairwise(chain)
    ):
        raise AdoptRefusedError("the index of that segment contradicts the local batches")
    problem = problem_of(chain, lost.floor, log, history)
    if problem:
        raise AdoptRefusedError(f"the chain of that segment is not whole: {problem}")
    return chain
