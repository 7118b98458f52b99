"""Snapshots of a KRaft log (`.checkpoint`), and `bootstrap.checkpoint`, which has the same form.

Batches with offsets of their own from 0: a control batch that begins with SNAPSHOT_HEADER (and
holds the kraft.version and the voters, where voters may change), data batches, and a control batch
with SNAPSHOT_FOOTER. The leader epoch of all is the snapshot's. A snapshot without its footer is
cut and worth nothing.

Source: KIP-630, KIP-853.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from struct import error
from typing import Any, NamedTuple

from kafka_protocol.errors import CorruptFileError, KafkaError, MalformedMessageError
from kafka_protocol.records.batch import (
    LOG_OVERHEAD,
    Buffer,
    has_valid_crc,
    iter_batches,
)
from kafka_protocol.records.control import (
    ControlType,
    control_batch,
    decode_control,
    kraft_version,
    kraft_voters,
    snapshot_footer,
    snapshot_header,
)
from kafka_protocol.records.records import NewRecord, Record, build_batch, iter_records

BOOTSTRAP_FILE = "bootstrap.checkpoint"
SUFFIX = ".checkpoint"
BATCH_MAX_BYTES = 8 * 1024 * 1024

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """What a snapshot holds: the log's records below `end_offset` (exclusive), last of `epoch`."""

    end_offset: int
    epoch: int


@dataclass(slots=True)
class Snapshot:
    """What a snapshot file says.

    Attributes:
        last_contained_timestamp_ms: append time of the last record it replaces.
        kraft_version: None when the file names none (static voters).
        voters: `VotersRecord.Voters` structs; None when the file names none.
        values: values of the data records, in order.
        epoch: leader epoch of its batches.
    """

    last_contained_timestamp_ms: int
    kraft_version: int | None = None
    voters: list[Any] | None = None
    values: list[bytes] = field(default_factory=list)
    epoch: int = 0


def file_name(snapshot_id: SnapshotId) -> str:
    """`<end offset in 20 digits>-<epoch in 10 digits>.checkpoint`."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def parse_file_name(name: str) -> SnapshotId | None:
    """The snapshot a file holds; None for any other name."""
    match = _NAME.fullmatch(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def build(
    values: Iterable[bytes],
    *,
    epoch: int,
    last_contained_timestamp_ms: int,
    now_ms: int | None = None,
    kraft_version_level: int | None = None,
    voters: Sequence[Any] | None = None,
    batch_max_bytes: int = BATCH_MAX_BYTES,
) -> bytes:
    """Write a snapshot.

    Args:
        values: of the data records, in order.
        epoch: of the last record it replaces.
        last_contained_timestamp_ms: append time of that record; 0 in `bootstrap.checkpoint`.
        now_ms: timestamp of the snapshot's own batches; None: as the above.
        kraft_version_level: with 1, `voters` (`VotersRecord.Voters` structs) must be given.
        voters: the voter set, None with static voters.
        batch_max_bytes: size at which a data batch is closed.
    """
    stamp = last_contained_timestamp_ms if now_ms is None else now_ms
    head = [snapshot_header(last_contained_timestamp_ms)]
    if kraft_version_level is not None:
        head.append(kraft_version(kraft_version_level))
    if voters is not None:
        head.append(kraft_voters(voters))
    out = control_batch(head, base_offset=0, leader_epoch=epoch, timestamp_ms=stamp)
    offset = len(head)
    for chunk in _chunks(values, batch_max_bytes):
        records: list[NewRecord] = [(stamp, None, value, ()) for value in chunk]
        out += build_batch(records, base_offset=offset, leader_epoch=epoch)
        offset += len(records)
    out += control_batch(
        [snapshot_footer()], base_offset=offset, leader_epoch=epoch, timestamp_ms=stamp
    )
    return bytes(out)


def _chunks(values: Iterable[bytes], max_bytes: int) -> Iterable[list[bytes]]:
    chunk: list[bytes] = []
    size_bytes = 0
    for value in values:
        if chunk and size_bytes + len(value) > max_bytes:
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(value)
        size_bytes += len(value) + 16
    if chunk:
        yield chunk


def read(data: Buffer) -> Snapshot:
    """Read a snapshot.

    Raises:
        CorruptFileError: cut, damaged, or not begun and ended as a snapshot is.
    """
    snapshot: Snapshot | None = None
    ended = False
    try:
        for record, is_control, epoch in _checked_records(data):
            if ended:
                raise CorruptFileError("records after the snapshot's footer")
            if not is_control:
                if snapshot is None or record.value is None:
                    raise CorruptFileError("a data record before the header, or without value")
                snapshot.values.append(record.value)
                continue
            kind, value = decode_control(record)
            if snapshot is None:
                if kind is not ControlType.SNAPSHOT_HEADER:
                    raise CorruptFileError(f"a snapshot does not begin with {kind.name}")
                snapshot = Snapshot(value.last_contained_log_timestamp, epoch=epoch)
            elif kind is ControlType.KRAFT_VERSION:
                snapshot.kraft_version = value.kraft_version
            elif kind is ControlType.KRAFT_VOTERS:
                snapshot.voters = value.voters
            ended = kind is ControlType.SNAPSHOT_FOOTER
    except (KafkaError, MalformedMessageError, error) as cause:
        raise CorruptFileError(f"snapshot: {cause}") from cause
    if snapshot is None or not ended:
        raise CorruptFileError("a snapshot without its header or footer")
    return snapshot


def _checked_records(data: Buffer) -> Iterable[tuple[Record, bool, int]]:
    """All records with (is control, epoch); every batch's checksum is checked."""
    end = 0
    for position, header in iter_batches(data):
        if not has_valid_crc(data, position, header):
            raise CorruptFileError(f"wrong checksum of the batch at byte {position}")
        end = position + header.batch_length + LOG_OVERHEAD
        for record in iter_records(data, position):
            yield record, header.is_control, header.partition_leader_epoch
    if end != len(data):
        raise CorruptFileError(f"the batch at byte {end} is cut")
