"""The short cut through metadata records reads what the full decoder reads, and refuses as it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlmm import quick_records, records
from rlmm.api import Fence, SegmentUpdate
from rlmm.events import SegmentAdded, SegmentUpdated, Stamp
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

SMALL = st.integers(0, 2**31 - 1)
LARGE = st.integers(0, 2**62)
PARTITIONS = st.builds(
    TopicIdPartition,
    st.binary(min_size=16, max_size=16),
    SMALL,
    st.sampled_from(["a", "orders", "x" * 126, "x" * 127, "y" * 249, "ü" * 60]),
)
IDS = st.builds(RemoteLogSegmentId, PARTITIONS, st.binary(min_size=16, max_size=16))
STAMPS = st.builds(
    Stamp,
    st.builds(Fence, st.integers(-1, 9), st.integers(-1, 9)),
    st.integers(-1, 9),
    st.integers(-1, 9),
    st.integers(-1, 9),
)
CUSTOM = st.none() | st.binary(max_size=3) | st.binary(min_size=126, max_size=128)
CHAINS = st.lists(st.tuples(SMALL, LARGE), min_size=1, max_size=3).map(
    lambda chain: tuple(
        EpochEntry(number * 2**20 + epoch % 2**20, start)
        for number, (epoch, start) in enumerate(
            zip([e for e, _ in chain], sorted(s for _, s in chain), strict=True)
        )
    )
)
STATES = st.sampled_from(SegmentState)


@st.composite
def added(draw: st.DrawFn) -> SegmentAdded:
    first = draw(LARGE)
    metadata = RemoteLogSegmentMetadata(
        id=draw(IDS),
        start_offset=first,
        end_offset=first + draw(SMALL),
        max_timestamp_ms=draw(st.integers(-1, 2**60)),
        broker_id=draw(SMALL),
        event_timestamp_ms=draw(LARGE),
        segment_size_bytes=draw(SMALL),
        leader_epochs=draw(CHAINS),
        state=draw(STATES),
        custom_metadata=draw(CUSTOM),
        txn_index_empty=draw(st.booleans()),
    )
    return SegmentAdded(metadata, draw(STAMPS), draw(st.booleans()))


UPDATED = st.builds(
    SegmentUpdated,
    st.builds(SegmentUpdate, IDS, STATES, LARGE, SMALL, CUSTOM, st.none() | STATES),
    STAMPS,
)


@given(added() | UPDATED, st.binary(min_size=16, max_size=16))
def test_what_was_seen_before_is_read_as_in_full(
    event: SegmentAdded | SegmentUpdated, other: bytes
) -> None:
    value = records.encode(event)
    assert records.decode(value) == records.decode(value) == event
    if isinstance(event, SegmentUpdated):
        update = replace(event.update, id=replace(event.update.id, id=other))
        event = replace(event, update=update)
    else:
        metadata = replace(event.metadata, id=replace(event.metadata.id, id=other))
        event = replace(event, metadata=metadata)
    assert records.decode(records.encode(event)) == event


@given(added() | UPDATED, st.data())
def test_a_changed_byte_or_cut_is_validated_as_in_full(
    event: SegmentAdded | SegmentUpdated, data: st.DataObject
) -> None:
    value = bytearray(records.encode(event))
    records.decode(bytes(value))
    place = data.draw(st.integers(0, len(value) - 1))
    if data.draw(st.booleans()):
        value[place] = data.draw(st.integers(0, 255))
    else:
        del value[place : place + data.draw(st.integers(1, 3))]
    quick = quick_records.read(bytes(value))
    if quick is not None:
        assert quick == records.decode_in_full(bytes(value))


def test_the_usual_record_takes_the_short_cut() -> None:
    partition = TopicIdPartition(bytes(16), 0, "usual")
    update = SegmentUpdate(
        RemoteLogSegmentId(partition, b"1" * 16), SegmentState.COPY_SEGMENT_FINISHED, 5, 1
    )
    event = SegmentUpdated(update, Stamp(Fence(1, 2)))
    value = records.encode(event)
    records.decode(value)
    assert quick_records.read(value) == event
