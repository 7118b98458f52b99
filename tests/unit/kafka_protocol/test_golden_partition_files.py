"""Files that Apache Kafka 4.3.1 wrote say to us what they said to Kafka's dump tool."""

import hashlib
import json
from typing import Any

import pytest

from kafka_protocol.files import (
    epoch_checkpoint,
    offset_checkpoint,
    offset_index,
    producer_snapshot,
    time_index,
    txn_index,
)
from kafka_protocol.files.meta_properties import (
    dump_meta_properties,
    dump_partition_metadata,
    parse_meta_properties,
    parse_partition_metadata,
)
from kafka_protocol.files.segment_names import parse_segment_file
from kafka_protocol.records.batch import (
    BatchHeader,
    Codec,
    has_valid_crc,
    iter_batches,
    pack_header,
    write_crc,
)
from kafka_protocol.records.records import Record, encode_records, iter_records
from tests.support.samples.golden_files import GOLDEN
from tests.support.samples.protocol_golden import (
    dumped_files,
    dumps,
    golden_file,
    golden_id,
    iter_golden,
)


def batch_line(position: int, header: BatchHeader, valid: bool) -> str:
    last_sequence = -1
    if header.base_sequence >= 0:
        last_sequence = header.base_sequence + header.last_offset_delta
    horizon = "OptionalLong.empty"
    if header.has_delete_horizon:
        horizon = f"OptionalLong[{header.base_timestamp}]"
    kind = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.record_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {str(header.is_transactional).lower()} "
        f"isControl: {str(header.is_control).lower()} deleteHorizonMs: {horizon} "
        f"position: {position} {kind}: {header.max_timestamp} size: {header.size_bytes} "
        f"magic: {header.magic} compresscodec: {Codec(header.codec).name.lower()} "
        f"crc: {header.crc} isvalid: {str(valid).lower()}"
    )


def size_of(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def record_line(header: BatchHeader, record: Record) -> str:
    sequence = -1
    if header.base_sequence >= 0:
        sequence = header.base_sequence + record.offset - header.base_offset
    kind = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    names = ",".join(name for name, _ in record.headers)
    return (
        f"| offset: {record.offset} {kind}: {record.timestamp} keySize: {size_of(record.key)} "
        f"valueSize: {size_of(record.value)} sequence: {sequence} headerKeys: [{names}]"
    )


def payload_text(record: Record) -> str | None:
    """What follows the line of a record with plain text, None where the tool cut or replaced."""
    text = ""
    for word, data in ((" key: ", record.key), (" payload: ", record.value)):
        if data is not None:
            if not data.isascii() or b"\n" in data or len(data) > 4000:
                return None
            text += word + data.decode()
    return text


@pytest.mark.parametrize("dumped", dumped_files(".log"))
def test_batches_and_records_of_a_log_are_those_kafka_printed(dumped: str) -> None:
    data = golden_file(dumped).read_bytes()
    lines = iter([line for line in dumps()[dumped] if line.startswith(("| offset", "baseOffset"))])
    end = 0
    is_data = dumped.startswith("partitions/") or "kafka-tiered-storage" in dumped
    for position, header in iter_batches(data):
        assert next(lines) == batch_line(position, header, has_valid_crc(data, position, header))
        for record in iter_records(data, position):
            line = next(lines)
            expected = record_line(header, record)
            assert line.startswith(expected)
            payload = payload_text(record)
            if is_data and not header.is_control and payload is not None:
                assert line == expected + payload
        end = position + header.size_bytes
    assert next(lines, None) is None
    assert end == len(data)


@pytest.mark.parametrize("dumped", dumped_files(".log"))
def test_batches_encode_to_the_same_bytes(dumped: str) -> None:
    data = golden_file(dumped).read_bytes()
    for position, header in iter_batches(data):
        end = position + header.size_bytes
        again = bytearray(pack_header(header._replace(crc=0))) + data[position + 61 : end]
        write_crc(again, 0, len(again))
        assert again == data[position:end]
        if header.codec == Codec.NONE and not header.is_log_append_time:
            records = list(iter_records(data, position))
            body = encode_records(records, header.base_offset, header.base_timestamp)
            assert body == data[position + 61 : end]


def entries_until_zero_tail(entries: list[Any], base_offset: int) -> list[Any]:
    """The dump tool stops at the first later entry whose offset is the base offset."""
    for slot, entry in enumerate(entries):
        if slot > 0 and entry.offset == base_offset:
            return entries[:slot]
    return entries


def base_offset_of(dumped: str) -> int:
    return int(dumped.rpartition("/")[2][:20])


@pytest.mark.parametrize("dumped", dumped_files(".index"))
def test_offset_indexes_hold_what_kafka_printed(dumped: str) -> None:
    data, base = golden_file(dumped).read_bytes(), base_offset_of(dumped)
    entries = list(offset_index.iter_entries(data, base))
    shown = entries_until_zero_tail(entries, base)
    printed = [line for line in dumps()[dumped] if line.startswith("offset: ")]
    assert [f"offset: {entry.offset} position: {entry.position}" for entry in shown] == printed
    packed = b"".join(offset_index.pack_entry(e.offset - base, e.position) for e in entries)
    assert packed == data
    for slot, entry in enumerate(shown):
        assert offset_index.lookup(data, base, entry.offset, len(shown)) == entry
        before = shown[slot - 1] if slot else (base, 0)
        assert offset_index.lookup(data, base, entry.offset - 1, len(shown)) == before


@pytest.mark.parametrize("dumped", dumped_files(".timeindex"))
def test_time_indexes_hold_what_kafka_printed(dumped: str) -> None:
    data, base = golden_file(dumped).read_bytes(), base_offset_of(dumped)
    entries = list(time_index.iter_entries(data, base))
    printed = [line for line in dumps()[dumped] if line.startswith("timestamp: ")]
    shown = entries[: len(printed)]
    assert [f"timestamp: {entry.timestamp} offset: {entry.offset}" for entry in shown] == printed
    assert not any(data[len(printed) * time_index.ENTRY_SIZE :])  # a zero tail, or nothing
    packed = b"".join(time_index.pack_entry(e.timestamp, e.offset - base) for e in entries)
    assert packed == data
    for entry in shown:
        assert time_index.lookup(data, base, entry.timestamp, len(shown)) == entry


@pytest.mark.parametrize("dumped", dumped_files(".txnindex"))
def test_transaction_indexes_hold_what_kafka_printed(dumped: str) -> None:
    data = golden_file(dumped).read_bytes()
    entries = list(txn_index.iter_entries(data))
    assert [
        f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
        f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        for entry in entries
    ] == [line for line in dumps()[dumped] if line.startswith("version: ")]
    assert b"".join(map(txn_index.pack_entry, entries)) == data


def producer_line(entry: producer_snapshot.ProducerEntry) -> str:
    open_since = "OptionalLong.empty"
    if entry.current_txn_first_offset >= 0:
        open_since = f"OptionalLong[{entry.current_txn_first_offset}]"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {open_since} "
        f"lastTimestamp: {entry.timestamp} "
    )
    if entry.last_sequence < 0:
        return line
    first_sequence = entry.last_sequence - entry.offset_delta
    return line + (
        f"firstSequence: {first_sequence} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
        f"timestamp: {entry.timestamp}"
    )


@pytest.mark.parametrize("dumped", dumped_files(".snapshot"))
def test_producer_snapshots_hold_what_kafka_printed(dumped: str) -> None:
    data = golden_file(dumped).read_bytes()
    entries = producer_snapshot.parse(data)
    printed = [line.rstrip() for line in dumps()[dumped]]
    assert [producer_line(entry).rstrip() for entry in entries] == printed
    assert producer_snapshot.dump(entries) == data


def test_every_dumped_log_directory_file_is_there() -> None:
    assert len(dumped_files(".log")) > 100
    assert all(golden_file(dumped).exists() for dumped in dumps())


@pytest.mark.parametrize("path", list(iter_golden("leader-epoch-checkpoint")), ids=golden_id)
def test_epoch_checkpoints_encode_to_the_same_bytes(path: Any) -> None:
    entries = epoch_checkpoint.parse(path.read_bytes())
    assert epoch_checkpoint.dump(entries) == path.read_bytes()


@pytest.mark.parametrize("path", list(iter_golden("*.leader_epoch_checkpoint")), ids=golden_id)
def test_remote_epoch_checkpoints_encode_to_the_same_bytes(path: Any) -> None:
    entries = epoch_checkpoint.parse(path.read_bytes())
    assert entries
    assert epoch_checkpoint.dump(entries) == path.read_bytes()


@pytest.mark.parametrize("path", list(iter_golden("*-offset-checkpoint")), ids=golden_id)
def test_offset_checkpoints_encode_to_the_same_bytes(path: Any) -> None:
    data = path.read_bytes()
    offsets = offset_checkpoint.parse(data)
    assert offset_checkpoint.dump(offsets) == (data or b"0\n0\n")


@pytest.mark.parametrize("path", list(iter_golden("partition.metadata")), ids=golden_id)
def test_partition_metadata_encodes_to_the_same_bytes(path: Any) -> None:
    topic_id = parse_partition_metadata(path.read_bytes())
    assert dump_partition_metadata(topic_id) == path.read_bytes()


@pytest.mark.parametrize("path", list(iter_golden("meta.properties")), ids=golden_id)
def test_meta_properties_are_kafkas_bytes_after_a_rewrite_but_for_comments(path: Any) -> None:
    meta = parse_meta_properties(path.read_bytes())
    assert meta.cluster_id
    assert meta.directory_id is not None
    assert parse_meta_properties(dump_meta_properties(meta)) == meta
    lines = path.read_bytes().splitlines(keepends=True)
    kept = b"".join(line for line in lines if not line.startswith(b"#"))
    assert dump_meta_properties(meta) == kept


def test_names_of_segment_files_are_understood() -> None:
    for path in (GOLDEN / "partitions").rglob("0*"):
        if path.suffix != ".deleted":
            assert parse_segment_file(path.name) == (int(path.name[:20]), path.suffix)


def test_every_golden_file_has_the_recorded_size_and_hash() -> None:
    manifest = json.loads((GOLDEN / "MANIFEST.json").read_text())
    for entry in manifest["files"]:
        data = (GOLDEN / entry["path"]).read_bytes()
        assert len(data) == entry["size"], entry["path"]
        assert hashlib.sha256(data).hexdigest() == entry["sha256"], entry["path"]
