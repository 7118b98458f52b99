"""Files of a log directory: written as Kafka does, refused when cut, damaged or of another kind."""

import tracemalloc

import pytest

from kafka_protocol.errors import CorruptFileError, MalformedMessageError
from kafka_protocol.files import (
    epoch_checkpoint,
    metadata_value,
    offset_checkpoint,
    offset_index,
    producer_snapshot,
    segment_names,
    time_index,
    txn_index,
)
from kafka_protocol.files.meta_properties import (
    MetaProperties,
    dump_meta_properties,
    dump_partition_metadata,
    parse_meta_properties,
    parse_partition_metadata,
)
from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.types import EpochEntry, TopicPartition
from kafka_protocol.wire.codec import message
from tests.support.samples import protocol_vectors as vectors

TS = 1_700_000_000_000
TOPIC_ID = bytes(range(1, 17))
SEGMENT_ID = bytes(range(0x11, 0x21))
PRODUCER = producer_snapshot.ProducerEntry(5000, 3, 44, 102, 2, TS, 11, 100)


@pytest.mark.parametrize(
    ("target", "expected"),
    [(100, (100, 0)), (149, (100, 0)), (150, (150, 4200)), (198, (150, 4200)), (9999, (199, 8400))],
)
def test_offset_lookups_are_by_floor(target: int, expected: tuple[int, int]) -> None:
    assert offset_index.lookup(vectors.OFFSET_INDEX, 100, target) == expected
    with_tail = vectors.OFFSET_INDEX + bytes(80)
    assert offset_index.lookup(with_tail, 100, target, entries=2) == expected


@pytest.mark.parametrize(
    ("target", "expected"), [(TS - 1, (-1, 100)), (TS, (TS, 150)), (TS + 100, (TS + 9, 199))]
)
def test_time_lookups_are_by_floor(target: int, expected: tuple[int, int]) -> None:
    assert time_index.lookup(vectors.TIME_INDEX, 100, target) == expected


def test_aborted_transactions_are_packed_as_kafka_does() -> None:
    entry = AbortedTransaction(5000, 100, 201, 100)
    assert txn_index.pack_entry(entry) == vectors.TXN_INDEX
    assert list(txn_index.iter_entries(vectors.TXN_INDEX)) == [entry]
    with pytest.raises(CorruptFileError):
        list(txn_index.iter_entries(vectors.TXN_INDEX[:-1]))
    with pytest.raises(CorruptFileError):
        list(txn_index.iter_entries(b"\0\1" + vectors.TXN_INDEX[2:]))


def test_a_read_finds_the_aborted_transactions_it_crosses() -> None:
    entries = [AbortedTransaction(1, 5, 10, 11), AbortedTransaction(2, 8, 20, 21)]
    assert txn_index.overlapping(iter(entries), 0, 5) == ([], True)
    assert txn_index.overlapping(iter(entries), 0, 6) == (entries[:1], True)
    assert txn_index.overlapping(iter(entries), 10, 12) == (entries, True)
    assert txn_index.overlapping(iter(entries), 11, 30) == (entries[1:], False)
    assert txn_index.overlapping(iter(entries), 21, 30) == ([], False)


def test_a_large_producer_snapshot_is_written_once_and_not_joined_of_parts() -> None:
    """A join or a copy of millions of bytes keeps the interpreter's lock from the event loop."""
    tracemalloc.start()
    try:
        data = producer_snapshot.dump(PRODUCER for _ in range(20_000))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(producer_snapshot.parse(data)) == 20_000
    assert peak_bytes < 1.5 * len(data)


def test_damaged_producer_snapshots_are_refused() -> None:
    data = producer_snapshot.dump([PRODUCER, PRODUCER])
    for size in range(len(data)):
        with pytest.raises(CorruptFileError):
            producer_snapshot.parse(data[:size])
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x10
        with pytest.raises(CorruptFileError):
            producer_snapshot.parse(broken)


def test_epoch_checkpoints_are_text() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(3, 1 << 40)]
    assert epoch_checkpoint.dump(entries) == b"0\n2\n0 0\n3 1099511627776\n"
    assert epoch_checkpoint.parse(epoch_checkpoint.dump(entries)) == entries
    assert epoch_checkpoint.parse(b"0\n1\n4 5") == [EpochEntry(4, 5)]


def test_offset_checkpoints_are_text() -> None:
    offsets = {TopicPartition("a", 0): 1, TopicPartition("a-b.c_d", 12): 1 << 50}
    assert offset_checkpoint.dump(offsets) == b"0\n2\na 0 1\na-b.c_d 12 1125899906842624\n"
    assert offset_checkpoint.parse(offset_checkpoint.dump(offsets)) == offsets
    assert offset_checkpoint.parse(b"") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"0\n-1\n",
        b"\xff\xfe\n0\n",
        b"0\n1\na 0 1\nb 0 1\n",
    ],
)
def test_damaged_checkpoints_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        offset_checkpoint.parse(data)


def test_meta_properties_keep_what_they_do_not_know() -> None:
    text = b"#comment\n\ncluster.id=my\\:cluster\\=1\nversion=1\nnode.id=7\nfuture.key=x\n"
    meta = parse_meta_properties(text)
    assert meta == MetaProperties("my:cluster=1", 7, None, 1, {"future.key": "x"})
    assert parse_meta_properties(dump_meta_properties(meta)) == meta
    assert b"cluster.id=my\\:cluster\\=1\n" in dump_meta_properties(meta)


def test_meta_properties_of_version_0_name_the_broker() -> None:
    meta = parse_meta_properties(b"version=0\nbroker.id=3\ncluster.id=c\n")
    assert (meta.version, meta.node_id) == (0, 3)
    assert b"broker.id=3\n" in dump_meta_properties(meta)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version=1\ncluster.id=c\n",
        b"version=x\ncluster.id=c\nnode.id=1\n",
        b"version=1\ncluster.id=c\nnode.id=one\n",
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n",
        b"no sign here\n",
        b"\xff\xff",
    ],
)
def test_damaged_meta_properties_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        parse_meta_properties(data)


def test_partition_metadata_has_no_newline_at_its_end() -> None:
    assert dump_partition_metadata(TOPIC_ID) == b"version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA"
    assert parse_partition_metadata(dump_partition_metadata(TOPIC_ID) + b"\n") == TOPIC_ID
    for data in (b"", b"version: 1\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA", b"version: 0\ntopic_id: x"):
        with pytest.raises(CorruptFileError):
            parse_partition_metadata(data)


def test_names_of_files_and_directories_are_read_back() -> None:
    assert segment_names.segment_file(42, segment_names.LOG) == "00000000000000000042.log"
    assert segment_names.parse_segment_file("00000000000000000042.log.deleted") is None
    tp = TopicPartition("a-1", 7)
    assert segment_names.parse_partition_dir(segment_names.partition_dir(tp)) == tp
    assert segment_names.parse_partition_dir("remote-log-index-cache") is None
    longest = TopicPartition("t" * 249, 123_456)
    name = segment_names.renamed_dir(longest, SEGMENT_ID, "delete")
    assert len(name) == segment_names.NAME_MAX_BYTES
    assert name.endswith(f"-123456.{SEGMENT_ID.hex()}-delete")
    short = segment_names.renamed_dir(tp, SEGMENT_ID, "stray")
    assert segment_names.parse_renamed_dir(short) == (tp, "stray")
    assert segment_names.parse_renamed_dir("a-1") is None


def test_remote_log_metadata_values_are_written_as_kafka_does() -> None:
    family = metadata_value.REMOTE_LOG_METADATA
    for value in (
        vectors.REMOTE_SEGMENT,
        vectors.REMOTE_UPDATE,
        vectors.REMOTE_PARTITION_DELETE,
        vectors.REMOTE_SNAPSHOT,
    ):
        assert metadata_value.encode(*metadata_value.decode(family, value)) == value
    cls = message("RemoteLogSegmentMetadataRecord").cls
    ids = cls.RemoteLogSegmentId
    record = cls(
        remote_log_segment_id=ids(
            topic_id_partition=ids.TopicIdPartition(name="topic-a", id=TOPIC_ID, partition=3),
            id=SEGMENT_ID,
        ),
        end_offset=99,
        broker_id=1,
        max_timestamp_ms=TS,
        event_timestamp_ms=TS + 100,
        segment_leader_epochs=[
            cls.SegmentLeaderEpochs(leader_epoch=0, offset=0),
            cls.SegmentLeaderEpochs(leader_epoch=2, offset=50),
        ],
        segment_size_in_bytes=1 << 20,
        txn_index_empty=True,
    )
    written = metadata_value.encode("RemoteLogSegmentMetadataRecord", 0, record)
    assert written == vectors.REMOTE_SEGMENT


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00" + vectors.REMOTE_UPDATE[1:],
        b"\x01\x63\x00",
        b"\x01\x01\x05" + vectors.REMOTE_UPDATE[3:],
        vectors.REMOTE_UPDATE + b"\0",
    ],
    ids=["empty", "frame 0", "unknown record", "unknown version", "left over"],
)
def test_damaged_metadata_values_are_refused(value: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        metadata_value.decode(metadata_value.REMOTE_LOG_METADATA, value)


def test_metadata_values_cut_anywhere_are_refused() -> None:
    for size in range(len(vectors.REMOTE_SEGMENT)):
        with pytest.raises(MalformedMessageError):
            metadata_value.decode(metadata_value.REMOTE_LOG_METADATA, vectors.REMOTE_SEGMENT[:size])
