"""Which local segment is copied next, and the metadata of its copy. Pure."""

from dataclasses import dataclass
from typing import Final

from kafka_protocol.types import EpochEntry
from rlm.link.messages import ClosedLocalSegment, PartitionSettings
from rlm.maintenance.log_facts import LogFacts
from rlmm import lineage
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata

PASS_SEGMENTS_MAX: Final = 4
PASS_MS: Final = 10_000
"""A pass of very large segments ends after the first one that exceeds this time."""


@dataclass(slots=True)
class CopyPriority:
    """Inputs for one partition's place in the queue for copier threads.

    Segments may close faster than they are copied, permanently or after an outage. So a pass ends
    after a few segments, and its partition queues again, in rounds. In a round each waiting
    partition is served once, those with the most bytes to copy first. A large lag is served
    earlier, and a small one waits at most for one pass of each other partition.

    Attributes:
        lag_bytes: Bytes left after its last pass; None before the first, which counts as the
            largest.
        round: The round in which it was served last.
    """

    lag_bytes: int | None = None
    round: int = -1


def queue_key(priority: CopyPriority, present_round: int) -> tuple[int, float]:
    """Position in the queue: the least is served first.

    Args:
        priority: Of the partition.
        present_round: Round of the latest pass that began.

    Returns:
        The round in which it is served next, then its place in that round.
    """
    lag = float("inf") if priority.lag_bytes is None else priority.lag_bytes
    return max(present_round, priority.round + 1), -lag


def is_over(copied: int, took_ms: int) -> bool:
    """True if a pass ends after `copied` segments although more is to be copied."""
    return copied >= PASS_SEGMENTS_MAX or (copied > 0 and took_ms >= PASS_MS)


def next_to_copy(
    facts: LogFacts, settings: PartitionSettings, now_ms: int
) -> ClosedLocalSegment | None:
    """The first closed segment that is wanted in the store and not wholly copied.

    Wanted are segments that end at or above the log start offset and wholly below the last stable
    offset. A segment is copied once each of its (epoch, offset) is in segments that count as
    copies. Oldest first: a segment that waits for its lag holds back all later ones, so the remote
    run has no holes.

    Returns:
        The segment, or None if there is nothing to copy now.
    """
    if settings.mode != "active":
        return None
    log = facts.log
    for segment in log.closed_segments:
        if segment.last_offset < log.log_start_offset:
            continue
        if segment.last_offset >= log.last_stable_offset:
            return None
        first = max(segment.base_offset, log.log_start_offset)
        if lineage.is_covered(facts.copied, facts.chain, first, segment.last_offset):
            continue
        return segment if _lag_is_over(facts, segment, settings, now_ms) else None
    return None


def _lag_is_over(
    facts: LogFacts, segment: ClosedLocalSegment, settings: PartitionSettings, now_ms: int
) -> bool:
    """True if the segment has waited for its time, or for enough newer bytes: one is enough.

    A lag of 0 means at once, -1 that this lag never ends the wait. A segment with a timestamp in
    the future does not wait for its time, as in Kafka: a producer's wrong clock would stop all
    copying.
    """
    age_ms = now_ms - segment.max_timestamp_ms
    if settings.copy_lag_ms == 0 or (
        settings.copy_lag_ms > 0 and not 0 <= age_ms < settings.copy_lag_ms
    ):
        return True
    if settings.copy_lag_bytes < 0:
        return False
    up_to_here = facts.log.closed_bytes_below + sum(
        other.size_bytes
        for other in facts.log.closed_segments
        if other.base_offset <= segment.base_offset
    )
    return facts.log.local_bytes - up_to_here >= settings.copy_lag_bytes


def lag(facts: LogFacts, settings: PartitionSettings) -> tuple[int, int]:
    """Count and bytes of the closed segments that are not copied yet; (0, 0) if copying is off.

    Segments that the description only counts are far above the copied run, and count as a whole.
    """
    if settings.mode != "active":
        return 0, 0
    waiting = [
        segment
        for segment in facts.log.closed_segments
        if segment.last_offset >= facts.log.log_start_offset
        and not lineage.is_covered(
            facts.copied,
            facts.chain,
            max(segment.base_offset, facts.log.log_start_offset),
            segment.last_offset,
        )
    ]
    size_bytes = sum(segment.size_bytes for segment in waiting)
    return len(waiting) + facts.log.more_closed_count, size_bytes + facts.log.more_closed_bytes


def started_metadata(
    facts: LogFacts,
    segment: ClosedLocalSegment,
    *,
    id: RemoteLogSegmentId,
    size_bytes: int,
    txn_index_empty: bool,
    broker_id: int,
    now_ms: int,
) -> RemoteLogSegmentMetadata:
    """The COPY_SEGMENT_STARTED record of one attempt.

    The epochs are those of the chain within the segment, the first one clipped to its start.
    """
    spans = lineage.chain_spans(facts.chain, segment.last_offset + 1)
    epochs = tuple(
        EpochEntry(span.epoch, max(span.first, segment.base_offset))
        for span in spans
        if span.last >= segment.base_offset
    )
    return RemoteLogSegmentMetadata(
        id=id,
        start_offset=segment.base_offset,
        end_offset=segment.last_offset,
        max_timestamp_ms=segment.max_timestamp_ms,
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        segment_size_bytes=size_bytes,
        leader_epochs=epochs,
        txn_index_empty=txn_index_empty,
    )
