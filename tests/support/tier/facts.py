"""Facts for passes and policies, in few words."""

from kafka_protocol.types import EpochEntry
from rlm.link.messages import ClosedLocalSegment, LogDescription
from rlm.maintenance.log_facts import LogFacts, RemoteSegment
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from tests.support.tier.log_in_memory import PARTITION


def local(first: int, last: int, size: int = 100, at_ms: int = 0) -> ClosedLocalSegment:
    return ClosedLocalSegment(first, last, size, at_ms)


def remote(
    number: int,
    first: int,
    last: int,
    *,
    epochs: tuple[tuple[int, int], ...] = ((1, 0),),
    size: int = 100,
    at_ms: int = 0,
    state: SegmentState = SegmentState.COPY_SEGMENT_FINISHED,
) -> RemoteSegment:
    metadata = RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(PARTITION, bytes([number]) * 16),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=at_ms,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=size,
        leader_epochs=tuple(EpochEntry(epoch, max(start, first)) for epoch, start in epochs),
        state=state,
    )
    return RemoteSegment(metadata, number)


def facts(
    closed: list[ClosedLocalSegment],
    segments: list[RemoteSegment],
    *,
    start: int = 0,
    local_start: int = 0,
    stable: int = 1_000,
    high_watermark: int = 1_000,
    chain: tuple[tuple[int, int], ...] = ((1, 0),),
    local_bytes: int | None = None,
    closed_from: int = 0,
    closed_bytes_below: int = 0,
) -> LogFacts:
    size = sum(each.size_bytes for each in closed) if local_bytes is None else local_bytes
    description = LogDescription(
        PARTITION.topic_id,
        0,
        1,
        log_start_offset=start,
        log_start_known=True,
        local_log_start_offset=local_start,
        last_stable_offset=stable,
        high_watermark=high_watermark,
        chain=list(chain),
        closed_segments=closed,
        local_bytes=size,
        metadata_offset=1,
        log_end_offset=1_000,
        closed_from=closed_from,
        closed_bytes_below=closed_bytes_below,
    )
    return LogFacts(description, segments)
