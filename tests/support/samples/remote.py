"""Segments and offsets for the tests of `tidemark remote`."""

from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlmm.lifecycle import SegmentEntry
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from tidemark.remote.audit import SUFFIXES, Held, layout_bases

PARTITION = TopicIdPartition(bytes(range(16)), 0, "orders")
NOW_MS = 1_700_000_000_000
COPY_MAX_MS = 3_600_000
STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED


def metadata(
    first: int,
    last: int,
    *,
    number: int | None = None,
    state: SegmentState = FINISHED,
    epoch: int = 0,
    age_ms: int = 60_000,
    size_bytes: int = 1_000,
) -> RemoteLogSegmentMetadata:
    """A segment of offsets [first, last]; its id is made of `number`, or of its first offset."""
    segment_id = (first if number is None else number).to_bytes(16, "big")
    return RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(PARTITION, segment_id),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=NOW_MS - age_ms,
        broker_id=1,
        event_timestamp_ms=NOW_MS - age_ms,
        segment_size_bytes=size_bytes,
        leader_epochs=(EpochEntry(epoch, first),),
        state=state,
    )


def entry(one: RemoteLogSegmentMetadata, order: int = 0) -> SegmentEntry:
    return SegmentEntry(one, 0, order if one.state is FINISHED else None)


def held(
    one: RemoteLogSegmentMetadata, *suffixes: str, log_bytes: int | None = None
) -> dict[str, Held]:
    """Its objects in the store: all of them, or some."""
    (base,) = layout_bases(one)
    sizes = dict.fromkeys(suffixes or SUFFIXES, 10)
    if ".log" in sizes:
        sizes[".log"] = one.segment_size_bytes if log_bytes is None else log_bytes
    return {base: Held(base, "orders", one.id.id, one.start_offset, sizes, NOW_MS)}
