"""Facts of one partition, made by hand: what its log says, and its remote segments."""

from kafka_protocol.types import EpochEntry
from rlm.link.messages import LogDescription
from rlmm.api import LOWEST_FENCE, Fence, SegmentHistory
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from tests.support.tier.log_in_memory import PARTITION

Chain = tuple[tuple[int, int], ...]


def log(
    *,
    start: int | None = 0,
    local_start: int = 0,
    end: int = 100,
    chain: Chain = ((1, 0),),
    leader_epoch: int = 9,
    chain_problem: str = "",
    has_no_entry: bool = False,
    unvalidated_end: int = -1,
    adopted_epoch: int = -1,
) -> LogDescription:
    """Log start 0 unless told; `start=None`: it is not known."""
    return LogDescription(
        PARTITION.topic_id,
        0,
        leader_epoch,
        log_start_offset=local_start if start is None else start,
        log_start_known=start is not None,
        local_log_start_offset=local_start,
        last_stable_offset=end,
        high_watermark=end,
        chain=list(chain),
        closed_segments=[],
        local_bytes=0,
        metadata_offset=1,
        log_end_offset=end,
        log_start_has_no_entry=has_no_entry,
        chain_problem=chain_problem,
        unvalidated_end=unvalidated_end,
        adopted_epoch=adopted_epoch,
    )


def segment(
    first: int,
    last: int,
    epochs: Chain = ((1, 0),),
    *,
    under: int | None = 1,
    state: SegmentState = SegmentState.COPY_SEGMENT_FINISHED,
) -> SegmentHistory:
    """A segment whose records were written under leader epoch `under`; None: by Kafka."""
    number = first * 1_000 + last * 10 + epochs[-1][0]
    metadata = RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(PARTITION, number.to_bytes(16, "big")),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=100,
        leader_epochs=tuple(EpochEntry(epoch, max(start, first)) for epoch, start in epochs),
        state=state,
    )
    fence = LOWEST_FENCE if under is None else Fence(under, 1)
    is_finished = state is SegmentState.COPY_SEGMENT_FINISHED
    return SegmentHistory(metadata, fence, fence if is_finished else None, first)
