"""Restores a lost epoch chain from local batches and an index in the store. Pure.

Each copied segment has a LEADER_EPOCH index: the epoch chain from the copier's log start to the
segment's end. The index of a segment that reaches the local start supplies the part below it. It is
used if it agrees with the metadata records of all finished segments that count, and no other source
contradicts it (stories H5, H7).
"""

from collections.abc import Sequence
from itertools import pairwise

from kafka_protocol.types import EpochEntry
from rlm.link.messages import LogDescription, Loss
from rlm.maintenance.log_validation import ChainLost, Unhealthy, local_chain, problem_of
from rlmm import lineage
from rlmm.api import PartitionHistory
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.health_reasons import HealthReason

Index = Sequence[EpochEntry] | None
"""Entries of a LEADER_EPOCH index; None: it is missing in the store, or damaged."""


def restored_chain(
    log: LogDescription,
    history: PartitionHistory,
    lost: ChainLost,
    indexes: Sequence[Index],
) -> list[EpochEntry] | Unhealthy:
    """The restored chain; `indexes` belong to `lost.sources`, in their order."""
    made = [
        chain
        for source, index in zip(lost.sources, indexes, strict=True)
        if (chain := _joined(log, source, index)) is not None
    ]
    if not made:
        return chain_is_lost(log, lost, "no remote segment can tell it")
    best = min(made, key=lambda chain: chain[0].start_offset)
    if any(not _agree(best, other, log.local_log_start_offset) for other in made):
        return chain_is_lost(log, lost, "the remote segments tell different ones")
    problem = problem_of(best, lost.floor, log, history)
    return chain_is_lost(log, lost, f"the one of the store: {problem}") if problem else best


def chain_is_lost(log: LogDescription, lost: ChainLost, why: str) -> Unhealthy:
    """A lost chain as a health reason with its remedies."""
    offset = log.local_log_start_offset
    return Unhealthy(
        Loss.CHAIN, HealthReason.CHAIN.text(problem=lost.problem, why=why, offset=offset)
    )


def _joined(
    log: LogDescription, source: RemoteLogSegmentMetadata, index: Index
) -> list[EpochEntry] | None:
    """The index below the local start, then the local chain; None where they do not fit."""
    if not index:
        return None
    local_start, local = log.local_log_start_offset, local_chain(log)
    below = [entry for entry in index if entry.start_offset < local_start]
    if not below or not _ascends(index):
        return None
    if any(not _holds(index, span) for span in lineage.segment_spans(source)):
        return None  # it contradicts its own record
    if local and below[-1].epoch == local[0].epoch:
        local = local[1:]
    chain = [*below, *local]
    return chain if _ascends(chain) else None


def _holds(index: Sequence[EpochEntry], span: lineage.Span) -> bool:
    return (
        lineage.epoch_at(index, span.first) == span.epoch
        and lineage.epoch_at(index, span.last) == span.epoch
    )


def _ascends(chain: Sequence[EpochEntry]) -> bool:
    return all(
        one.epoch < other.epoch and one.start_offset < other.start_offset
        for one, other in pairwise(chain)
    )


def _agree(one: Sequence[EpochEntry], other: Sequence[EpochEntry], end: int) -> bool:
    """True if two chains agree on the offsets below `end` that both include."""
    first = max(one[0].start_offset, other[0].start_offset)
    return _from(one, first, end) == _from(other, first, end)


def _from(chain: Sequence[EpochEntry], first: int, end: int) -> list[lineage.Span]:
    return [
        span._replace(first=max(span.first, first))
        for span in lineage.chain_spans(chain, end)
        if span.last >= first
    ]
