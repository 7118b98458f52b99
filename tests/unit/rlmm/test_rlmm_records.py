from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.types import EpochEntry, TopicIdPartition
from kafka_protocol.wire.codec import message
from rlmm import records
from rlmm.api import REMOVER_FENCE, Fence, PartitionDeleteState, SegmentUpdate
from rlmm.events import (
    NO_STAMP,
    MetadataEvent,
    PartitionDeleted,
    SegmentAdded,
    SegmentUpdated,
    Stamp,
)
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

TS = 1_700_000_000_000
OWNER = TopicIdPartition(bytes(range(1, 17)), 3, "topic-a")
ID = RemoteLogSegmentId(OWNER, bytes(range(17, 33)))
ADDED = SegmentAdded(
    RemoteLogSegmentMetadata(
        id=ID,
        start_offset=0,
        end_offset=99,
        max_timestamp_ms=TS,
        broker_id=1,
        event_timestamp_ms=TS + 100,
        segment_size_bytes=1_048_576,
        leader_epochs=(EpochEntry(0, 0), EpochEntry(2, 50)),
        txn_index_empty=True,
    )
)
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
UPDATED = SegmentUpdated(SegmentUpdate(ID, FINISHED, TS + 200, 1, b"\x01\x02\x03"))
MARKED = PartitionDeleted(OWNER, PartitionDeleteState.DELETE_PARTITION_MARKED, TS + 300, 1)
STAMP = Stamp(Fence(7, 3), 1234, log_start=567, unclean_epoch=6)

VECTORS: list[tuple[MetadataEvent, str]] = [
    (
        ADDED,
        "01000008746f7069632d610102030405060708090a0b0c0d0e0f1000000003001112131415161718191a1b1c1d"
        "1e1f200000000000000000000000000000000063000000010000018bcfe568000000018bcfe568640300000000"
        "0000000000000000000000000200000000000000320000100000000001000101",
    ),
    (
        replace(ADDED, metadata=replace(ADDED.metadata, txn_index_empty=False)),
        "01000008746f7069632d610102030405060708090a0b0c0d0e0f1000000003001112131415161718191a1b1c1d"
        "1e1f200000000000000000000000000000000063000000010000018bcfe568000000018bcfe568640300000000"
        "0000000000000000000000000200000000000000320000100000000000",
    ),
    (
        UPDATED,
        "01010008746f7069632d610102030405060708090a0b0c0d0e0f1000000003001112131415161718191a1b1c1d"
        "1e1f2000000000010000018bcfe568c8040102030100",
    ),
    (
        replace(UPDATED, update=replace(UPDATED.update, custom_metadata=None)),
        "01010008746f7069632d610102030405060708090a0b0c0d0e0f1000000003001112131415161718191a1b1c1d"
        "1e1f2000000000010000018bcfe568c8000100",
    ),
    (
        MARKED,
        "01020008746f7069632d610102030405060708090a0b0c0d0e0f100000000300000000010000018bcfe5692c00"
        "00",
    ),
]
KAFKAS_NAMES = {
    SegmentAdded: "RemoteLogSegmentMetadataRecord",
    SegmentUpdated: "RemoteLogSegmentMetadataUpdateRecord",
    PartitionDeleted: "RemotePartitionDeleteMetadataRecord",
}


@pytest.mark.parametrize(("event", "hexed"), VECTORS)
def test_kafkas_own_bytes_both_ways(event: MetadataEvent, hexed: str) -> None:
    assert records.encode(event).hex() == hexed
    assert records.decode(bytes.fromhex(hexed)) == event


@pytest.mark.parametrize("event", [ADDED, UPDATED, MARKED])
@pytest.mark.parametrize(
    "stamp",
    [
        NO_STAMP,
        STAMP,
        Stamp(REMOVER_FENCE),
        Stamp(Fence(0, 0), 0),
        Stamp(Fence(0, 0), 0, log_start=0),
        Stamp(Fence(0, 0), log_start=2**63 - 1, unclean_epoch=0),
    ],
)
def test_the_stamp_comes_back(event: MetadataEvent, stamp: Stamp) -> None:
    stamped = replace(event, stamp=stamp)
    assert records.decode(records.encode(stamped)) == stamped


@pytest.mark.parametrize("event", [ADDED, UPDATED, MARKED])
def test_kafkas_readers_skip_our_stamp(event: MetadataEvent) -> None:
    stamped = records.encode(replace(event, stamp=STAMP))
    kafkas = message(KAFKAS_NAMES[type(event)])
    body, end = kafkas.decode(stamped, 0, 3)
    assert end == len(stamped)
    assert stamped[:3] + kafkas.encode(body, 0) == records.encode(event)


EARLIER = (  # VECTORS' third, as the version before wrote it: pair (7, 3), metadata offset 1234
    "01010008746f7069632d610102030405060708090a0b0c0d0e0f1000000003001112131415161718191a1b1c1d"
    "1e1f2000000000010000018bcfe568c8040102030103"
    "904e0400000007"  # 10000
    "914e080000000000000003"
    "924e0800000000000004d2"
)
LOG_START = "934e080000000000000237"
UNCLEAN = "944e0400000006"


def test_records_of_earlier_versions_carry_no_log_start_and_no_election() -> None:
    old = replace(UPDATED, stamp=Stamp(Fence(7, 3), 1234))
    assert records.decode(bytes.fromhex(EARLIER)) == old
    assert records.encode(old).hex() == EARLIER


def test_log_start_and_election_are_the_tags_10003_and_10004() -> None:
    fields = EARLIER.replace("0102030103", "0102030105")  # five tagged fields
    assert records.encode(replace(UPDATED, stamp=STAMP)).hex() == fields + LOG_START + UNCLEAN


def test_the_state_that_the_writer_of_a_deletion_saw_is_the_tag_10005() -> None:
    """Records of earlier versions, and of Kafka, do not have it."""
    update = replace(UPDATED.update, state=SegmentState.DELETE_SEGMENT_STARTED)
    plain = records.encode(replace(UPDATED, update=update))
    for state in (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED):
        event = replace(UPDATED, update=replace(update, seen_state=state))
        assert records.encode(event).hex() == plain.hex()[:-2] + f"01954e01{int(state):02x}"
        assert records.decode(records.encode(event)) == event
    unknown = records.encode(event)[:-1] + b"\x09"
    with pytest.raises(records.DamagedRecordError):
        records.decode(unknown)


def test_a_full_record_of_a_barrier_says_so_in_the_tag_10006() -> None:
    barrier = replace(ADDED, is_barrier=True)
    assert records.encode(barrier).hex().endswith("964e0101")
    assert records.decode(records.encode(barrier)) == barrier
    kafkas = message(KAFKAS_NAMES[SegmentAdded])
    body, end = kafkas.decode(records.encode(barrier), 0, 3)
    assert end == len(records.encode(barrier)), "Kafka's readers skip it"
    assert body.remote_log_segment_state == int(ADDED.metadata.state)


@pytest.mark.parametrize("event", [ADDED, UPDATED, MARKED])
@pytest.mark.parametrize("wrong", [Stamp(log_start=-2), Stamp(unclean_epoch=-2)])
def test_a_log_start_or_election_below_none_is_damage(event: MetadataEvent, wrong: Stamp) -> None:
    with pytest.raises(records.DamagedRecordError):
        records.decode(records.encode(replace(event, stamp=wrong)))


@pytest.mark.parametrize(("event", "hexed"), VECTORS)
def test_every_cut_is_damage(event: MetadataEvent, hexed: str) -> None:
    value = bytes.fromhex(hexed)
    for size in range(len(value)):
        with pytest.raises(records.UnreadableRecordError):
            records.decode(value[:size])
    with pytest.raises(records.DamagedRecordError):
        records.decode(value + b"\0")


def test_a_record_without_value_is_a_tombstone_and_an_empty_one_is_damage() -> None:
    with pytest.raises(records.TombstoneRecordError):
        records.decode(None)
    with pytest.raises(records.DamagedRecordError):
        records.decode(b"")


@pytest.mark.parametrize(
    "head", [b"\x02\x00\x00", b"\x01\x09\x00", b"\x01\x00\x01", b"\x01\x03\x00"]
)
def test_other_frames_kinds_and_versions_are_unknown(head: bytes) -> None:
    with pytest.raises(records.UnknownRecordError):
        records.decode(head + records.encode(ADDED)[3:])


@pytest.mark.parametrize(
    "wrong",
    [
        replace(ADDED.metadata, start_offset=100),
        replace(ADDED.metadata, start_offset=-1),
        replace(ADDED.metadata, segment_size_bytes=-1),
        replace(ADDED.metadata, leader_epochs=()),
        replace(ADDED.metadata, leader_epochs=(EpochEntry(2, 0), EpochEntry(1, 50))),
        replace(ADDED.metadata, leader_epochs=(EpochEntry(1, 50), EpochEntry(2, 0))),
    ],
)
def test_what_cannot_be_is_damage(wrong: RemoteLogSegmentMetadata) -> None:
    with pytest.raises(records.DamagedRecordError):
        records.decode(records.encode(SegmentAdded(wrong)))


def test_an_unknown_state_is_damage() -> None:
    value = bytearray(records.encode(UPDATED))
    value[-2] = 9
    with pytest.raises(records.DamagedRecordError):
        records.decode(bytes(value))


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x01\x00\x00", b"\x01\x01\x00", b"\x01\x02\x00"]),
)
def test_any_bytes_are_read_or_refused(tail: bytes, head: bytes) -> None:
    try:
        event = records.decode(head + tail)
    except records.UnreadableRecordError:
        return
    assert records.decode(records.encode(event)) == event


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_one_flipped_bit_is_read_or_refused(place: int, bit: int) -> None:
    value = bytearray(records.encode(replace(ADDED, stamp=STAMP)))
    value[place % len(value)] ^= 1 << bit
    try:
        records.decode(bytes(value))
    except records.UnreadableRecordError:
        return
