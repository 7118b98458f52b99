"""Whole record batches to Arrow: the contract between the reading of bytes and everything above.

Positions are those of a batch's first byte. Must not know: stores, brokers, Spark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.records.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    Buffer,
    has_valid_crc,
    iter_batches,
)
from kafka_protocol.records.records import iter_records
from kafka_protocol.types import EpochEntry
from pipeline.columns import schema_of
from pipeline.errors import DamagedDataError

BATCH_BYTES = 8 << 20
"""About what one Arrow batch should hold, in inflated bytes of records."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where bytes come from: for rows and for messages.

    Attributes:
        name: the object, or the broker.
        position: of the data's first byte in it.
    """

    topic: str
    partition: int
    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Which rows are wanted.

    Attributes:
        first: smallest offset (inclusive).
        last: largest offset (inclusive).
        aborted: transactions whose records are left out.
        epochs: where given, every batch must be of this chain's epoch at its base offset.
    """

    first: int
    last: int
    aborted: tuple[AbortedTransaction, ...] = ()
    epochs: tuple[EpochEntry, ...] = ()


def whole_batches(data: Buffer) -> int:
    """Bytes at the front of `data` that `decode_group` can judge: all its whole batches.

    At a length that no batch has, nothing behind it can be found: then this is all of `data`, so
    that `decode_group` names the damage.
    """
    position, end = 0, len(data)
    while position + HEADER_SIZE <= end:
        length = HEADER.unpack_from(data, position)[1]
        if length < HEADER_SIZE - LOG_OVERHEAD:
            return end
        if position + length + LOG_OVERHEAD > end:
            break
        position += length + LOG_OVERHEAD
    return position


def decode_group(
    data: Buffer,
    origin: Origin,
    keep: Keep,
    columns: Sequence[str],
    *,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Decode whole batches, in the order of their offsets.

    Memory stays at a few times `batch_bytes` and the largest batch, whatever the data inflates to.

    Args:
        data: whole batches and nothing else.
        origin: where they come from.
        keep: rows that are wanted.
        columns: of `pipeline.columns`, in the order wanted.
        batch_bytes: about the inflated bytes of records behind one Arrow batch.

    Yields:
        Arrow batches of at least one row.

    Raises:
        DamagedDataError: names object, position, offset and reason; raised by the first `next` for
            what headers and checksums show, otherwise where the damage stands.
    """
    del batch_bytes
    schema = schema_of(columns)
    for position, header in iter_batches(data):
        if not has_valid_crc(data, position, header):
            raise DamagedDataError(f"{origin.name}, byte {origin.position + position}: wrong CRC")
        rows: list[dict[str, Any]] = []
        if not header.is_control:
            kind = int(header.is_log_append_time)
            rows = [
                {
                    "key": record.key,
                    "value": record.value,
                    "topic": origin.topic,
                    "partition": origin.partition,
                    "offset": record.offset,
                    "timestamp": record.timestamp * 1000,
                    "timestampType": kind,
                    "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
                }
                for record in iter_records(data, position)
                if keep.first <= record.offset <= keep.last
            ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
