"""Batches of the metadata log and its snapshots.

They are as Kafka writes them: uncompressed, CreateTime, one timestamp for all records of a batch,
the leader epoch in every header. A control batch may have several control records. The first batch
of an epoch has LEADER_CHANGE and, once, the voters. The first batch of a snapshot has its header
and the voters.

Each batch of our log has the flushed end of the log at the time of its making. The header's base
sequence has the distance from there to the batch. It is unused without a producer id, and the
checksum covers it. The value -1, which Kafka writes, means unknown. See
docs/decisions/a-batch-knows-the-flushed-end.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from kafka_protocol.errors import TidemarkError
from kafka_protocol.records.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    has_valid_crc,
    pack_header,
    read_header,
    write_crc,
)
from kafka_protocol.records.control import (
    ControlEntry,
    ControlType,
    control_type,
    decode_control,
    kraft_version,
    kraft_voters,
)
from kafka_protocol.records.records import Record, encode_records, iter_records
from kafka_protocol.wire.codec import message
from metadata_topic.image.records import MetadataRecord, decode_record, encode_record
from metadata_topic.raft.messages import BatchFacts
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from runtime.work import Steps, stepwise

MAGIC: Final = 2
_BASE_SEQUENCE: Final = Struct(">i")
_BASE_SEQUENCE_POSITION: Final = 53
_RECORDS_AT_ONCE: Final = 500
_INT32_MAX: Final = 2**31 - 1
_CONTROL_TYPES: Final = frozenset(map(int, ControlType))

Control = tuple[ControlType, Any]
"""A decoded control record: its type and its struct."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A decoded batch: either control records or metadata records."""

    header: BatchHeader
    controls: tuple[Control, ...] = ()
    records: tuple[MetadataRecord, ...] = ()


class CorruptBatchError(TidemarkError):
    """Bytes that are not a whole batch with a valid checksum."""


def data_batch(
    records: Sequence[MetadataRecord], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytearray:
    """Make a batch of metadata records."""
    values = [encode_record(record) for record in records]
    return value_batch(values, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)


@stepwise
def value_batch(
    values: Sequence[bytes], *, base_offset: int, epoch: int, timestamp_ms: int
) -> Steps[bytearray]:
    """Make a batch of encoded metadata records, in steps."""
    batch = bytearray(HEADER_SIZE)
    for start in range(0, len(values), _RECORDS_AT_ONCE):
        first = base_offset + start
        records = [
            Record(offset, timestamp_ms, None, value, [])
            for offset, value in enumerate(values[start : start + _RECORDS_AT_ONCE], first)
        ]
        batch += encode_records(records, base_offset, timestamp_ms)
        if start + _RECORDS_AT_ONCE < len(values):
            yield
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=len(batch) - 12,
        partition_leader_epoch=epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=max(len(values) - 1, 0),
        base_timestamp=timestamp_ms if values else NO_TIMESTAMP,
        max_timestamp=timestamp_ms if values else NO_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=len(values),
    )
    batch[:HEADER_SIZE] = pack_header(header)
    write_crc(batch, 0, len(batch))
    return batch


def note_flushed_end(batch: bytearray, flushed_end: int) -> None:
    """Write the log's flushed end (exclusive), as of the begin of the batch, into a batch."""
    header = read_header(batch)
    distance = header.base_offset - flushed_end
    assert distance >= 0, f"flushed to {flushed_end}, beyond the batch at {header.base_offset}"
    if distance <= _INT32_MAX:
        _BASE_SEQUENCE.pack_into(batch, _BASE_SEQUENCE_POSITION, distance)
        write_crc(batch, 0, header.size_bytes)


def flushed_end_of(header: BatchHeader) -> int | None:
    """Return the flushed end (exclusive) noted in a batch; None if unknown."""
    if header.producer_id >= 0 or header.base_sequence < 0:
        return None
    return header.base_offset - header.base_sequence


def read_batches(data: Buffer) -> Iterator[Batch]:
    """Decode contiguous batches.

    Raises:
        CorruptBatchError: At the first cut or damaged batch.
        UnknownMetadataRecordError, InvalidRecordError, MalformedMessageError: This version cannot
            read a record.
    """
    for position, header in whole_batches(data):
        records = iter_records(data, position)
        if header.is_control:
            yield Batch(header, controls=tuple(known_controls(records)))
        else:
            yield Batch(header, records=tuple(decode_record(r.value or b"") for r in records))


def known_controls(records: Iterable[Record]) -> Iterator[Control]:
    """Decode control records, except those of unknown types.

    Raises:
        InvalidRecordError, MalformedMessageError: From `decode_control`.
    """
    return (decode_control(one) for one in records if control_type(one) in _CONTROL_TYPES)


def facts_of(batch: Batch) -> BatchFacts:
    """Describe a batch for the Raft core."""
    header, level, voters = batch.header, None, None
    for kind, value in batch.controls:
        if kind is ControlType.KRAFT_VERSION:
            level = value.kraft_version
        elif kind is ControlType.KRAFT_VOTERS:
            voters = voters_of(value)
    return BatchFacts(
        header.base_offset, header.next_offset, header.partition_leader_epoch, level, voters
    )


def read_records(data: Buffer, position: int) -> Iterator[MetadataRecord]:
    """Decode the metadata records of the batch at `position` one by one.

    Raises:
        UnknownMetadataRecordError, InvalidRecordError, MalformedMessageError: From `read_batches`.
    """
    return (decode_record(record.value or b"") for record in iter_records(data, position))


def whole_batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield positions and headers of contiguous batches.

    Raises:
        CorruptBatchError: At the first cut or damaged batch.
    """
    position = 0
    while position < len(data):
        if len(data) - position < HEADER_SIZE:
            raise CorruptBatchError(f"{len(data) - position} bytes after the last batch")
        header = read_header(data, position)
        end = position + header.size_bytes
        if header.magic != MAGIC or header.size_bytes < HEADER_SIZE or end > len(data):
            raise CorruptBatchError(f"no whole batch at position {position}")
        if not has_valid_crc(data, position, header):
            raise CorruptBatchError(f"checksum mismatch in the batch at position {position}")
        yield position, header
        position = end


def quorum_entries(level: int, voters: VoterSet) -> tuple[ControlEntry, ...]:
    """Return KRAFT_VERSION and KRAFT_VOTERS; nothing for kraft.version 0, which has neither."""
    return () if level == 0 else (kraft_version(level), voters_entry(voters))


def voters_entry(voters: VoterSet) -> ControlEntry:
    """Return KRAFT_VOTERS, the record of the voters."""
    cls = message("VotersRecord").cls.Voters
    entries = [
        cls(
            voter_id=voter.key.id,
            voter_directory_id=voter.key.directory_id,
            endpoints=[
                cls.Endpoints(name=e.name, host=e.host, port=e.port) for e in voter.endpoints
            ],
            kraft_version_feature=cls.KRaftVersionFeature(
                min_supported_version=voter.kraft_versions[0],
                max_supported_version=voter.kraft_versions[1],
            ),
        )
        for voter in voters.voters
    ]
    return kraft_voters(entries)


def voters_of(record: Any) -> VoterSet:
    """Decode a VotersRecord, sorted by id."""
    voters = [
        Voter(
            ReplicaKey(v.voter_id, v.voter_directory_id),
            tuple(VoterEndpoint(e.name, e.host, e.port) for e in v.endpoints),
            (
                v.kraft_version_feature.min_supported_version,
                v.kraft_version_feature.max_supported_version,
            ),
        )
        for v in record.voters
    ]
    return VoterSet(tuple(sorted(voters, key=lambda voter: voter.key.id)))
