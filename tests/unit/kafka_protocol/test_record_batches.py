"""Batches are built as Kafka's own classes build them, and read back."""

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import (
    BatchHeader,
    Codec,
    crc32c_of,
    has_valid_crc,
    iter_batches,
    patch_offset_and_epoch,
    read_header,
    set_log_append_time,
    write_crc,
)
from kafka_protocol.records.control import (
    ControlType,
    control_batch,
    control_type,
    decode_control,
    end_transaction_batch,
    kraft_version,
    kraft_voters,
    leader_change,
    snapshot_footer,
    snapshot_header,
)
from kafka_protocol.records.records import InvalidRecordError, Record, build_batch, iter_records
from kafka_protocol.wire.codec import message
from tests.support.samples import protocol_vectors as vectors

TS = 1_700_000_000_000


def test_a_plain_batch_is_built_as_kafka_does() -> None:
    batch = build_batch([(TS, b"key", b"value", [("h", b"v")])], base_offset=100, leader_epoch=7)
    assert batch == vectors.PLAIN
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 100, 101)
    assert (header.size_bytes, header.codec, header.is_control) == (len(batch), 0, False)
    assert list(iter_records(batch)) == [Record(100, TS, b"key", b"value", [("h", b"v")])]


def test_a_transactional_batch_is_built_as_kafka_does() -> None:
    batch = build_batch(
        [(TS, b"k", b"a", ()), (TS + 5, None, b"b", ()), (TS - 3, b"t", None, ())],
        base_offset=100,
        leader_epoch=7,
        producer_id=5000,
        producer_epoch=3,
        base_sequence=42,
        is_transactional=True,
    )
    assert batch == vectors.TRANSACTIONAL
    header = read_header(batch)
    assert header.is_transactional
    assert header.max_timestamp == TS + 5
    assert [record.timestamp for record in iter_records(batch)] == [TS, TS + 5, TS - 3]


@pytest.mark.parametrize(
    ("kind", "offset", "expected"),
    [(ControlType.COMMIT, 200, vectors.COMMIT), (ControlType.ABORT, 201, vectors.ABORT)],
)
def test_transaction_markers_are_built_as_kafka_does(
    kind: ControlType, offset: int, expected: bytes
) -> None:
    batch = end_transaction_batch(
        kind,
        base_offset=offset,
        leader_epoch=9,
        timestamp_ms=TS,
        producer_id=5000,
        producer_epoch=3,
        coordinator_epoch=11,
    )
    assert batch == expected
    (record,) = iter_records(batch)
    decoded, marker = decode_control(record)
    assert (decoded, marker.coordinator_epoch) == (kind, 11)
    assert read_header(batch).is_control


def test_kraft_control_batches_are_built_as_kafka_does() -> None:
    voter = message("VotersRecord").cls.Voters
    voters = [
        voter(
            voter_id=1,
            voter_directory_id=b"\x11" * 8 + b"\x22" * 8,
            endpoints=[voter.Endpoints(name="CONTROLLER", host="h1", port=9093)],
            kraft_version_feature=voter.KRaftVersionFeature(max_supported_version=1),
        )
    ]
    built = [
        control_batch([entry], base_offset=offset, leader_epoch=1, timestamp_ms=TS)
        for offset, entry in enumerate(
            [snapshot_header(TS), snapshot_footer(), kraft_version(1), kraft_voters(voters)]
        )
    ]
    assert built == [
        vectors.SNAPSHOT_HEADER,
        vectors.SNAPSHOT_FOOTER,
        vectors.KRAFT_VERSION,
        vectors.KRAFT_VOTERS,
    ]
    entry = leader_change(1, [1, 2], [1])
    leader = control_batch([entry], base_offset=300, leader_epoch=4, timestamp_ms=TS)
    assert leader == vectors.LEADER_CHANGE


def test_control_records_of_unknown_types_keep_their_number() -> None:
    record = Record(0, TS, b"\0\0\0\x63", b"", [])
    assert control_type(record) == 99
    with pytest.raises(InvalidRecordError):
        decode_control(record)
    with pytest.raises(InvalidRecordError):
        control_type(Record(0, TS, b"\0", b"", []))


@pytest.mark.parametrize("codec", list(Codec))
def test_what_we_compress_we_read(codec: Codec) -> None:
    records: list[Record] = [
        Record(10 + n * 2, TS + n, b"k%d" % n, b"v" * n * 50, []) for n in range(200)
    ]
    batch = build_batch(records, base_offset=10, codec=codec)
    assert list(iter_records(memoryview(batch))) == records
    assert read_header(batch).last_offset == records[-1].offset


def test_a_batch_is_given_its_place_without_a_new_checksum() -> None:
    batch = build_batch([(TS, None, b"v", ())])
    patch_offset_and_epoch(batch, 0, 1 << 40, 12)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)
    assert has_valid_crc(batch, 0, header)


def test_append_time_holds_for_every_record() -> None:
    batch = build_batch([(TS, None, b"v", ()), (TS + 9, None, b"w", ())])
    set_log_append_time(batch, 0, read_header(batch), TS + 1000)
    header = read_header(batch)
    assert header.is_log_append_time
    assert has_valid_crc(batch, 0, header)
    assert {record.timestamp for record in iter_records(batch)} == {TS + 1000}
    again = build_batch(
        [(TS, None, b"v", ()), (TS + 9, None, b"w", ())], log_append_time_ms=TS + 1000
    )
    assert again == batch


def test_a_changed_byte_is_seen_by_the_checksum() -> None:
    batch = bytearray(vectors.PLAIN)
    batch[-1] ^= 1
    assert not has_valid_crc(batch, 0, read_header(batch))
    assert write_crc(batch, 0, len(batch)) == crc32c_of(batch, 21, len(batch) - 21)
    assert has_valid_crc(batch, 0, read_header(batch))


def test_a_batch_that_is_cut_or_too_short_has_no_valid_checksum() -> None:
    header = read_header(vectors.PLAIN)
    assert not has_valid_crc(vectors.PLAIN[:-1], 0, header)
    assert not has_valid_crc(vectors.PLAIN, 0, header._replace(batch_length=48))
    assert not has_valid_crc(vectors.PLAIN, 0, header._replace(batch_length=-1))


def test_only_whole_batches_are_walked() -> None:
    data = vectors.PLAIN + vectors.TRANSACTIONAL + vectors.COMMIT
    ends = [len(vectors.PLAIN), len(vectors.PLAIN + vectors.TRANSACTIONAL), len(data)]
    for size in range(len(data) + 1):
        found = [position + header.size_bytes for position, header in iter_batches(data[:size])]
        assert found == [end for end in ends if end <= size]
    assert [position for position, _ in iter_batches(data, ends[0], ends[1])] == [ends[0]]


@pytest.mark.parametrize("length", [-1, 0, 48, 0x7FFFFFFF])
def test_a_senseless_length_ends_the_walk(length: int) -> None:
    data = bytearray(vectors.PLAIN + vectors.PLAIN)
    data[8:12] = length.to_bytes(4, "big", signed=True)
    assert list(iter_batches(data)) == []


def test_header_flags_say_what_they_mean() -> None:
    header = BatchHeader._make([0] * 13)._replace(attributes=0x40 | 0x20 | 0x10 | 0x08 | 4)
    assert header.has_delete_horizon
    assert header.is_control
    assert header.is_transactional
    assert header.is_log_append_time
    assert header.codec == Codec.ZSTD


def test_an_empty_batch_can_be_built_and_read() -> None:
    batch = build_batch([])
    assert list(iter_records(batch)) == []
    assert read_header(batch).max_timestamp == -1


def test_an_invalid_record_is_told_to_the_client_as_such() -> None:
    assert InvalidRecordError.code is ErrorCode.INVALID_RECORD
    assert not ErrorCode.INVALID_RECORD.retriable
    assert ErrorCode.CORRUPT_MESSAGE.retriable
