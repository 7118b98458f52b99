"""The rows a reader must give, made one record at a time: by batch, by consumer, or from Arrow.

This is the naive twin of the pipeline: it shares no code with it but the record format.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from kafka_protocol.records.batch import read_header
from kafka_protocol.records.control import ControlType, control_type
from kafka_protocol.records.records import iter_records
from kafka_protocol.types import TopicPartition

Header = tuple[str, bytes | None]
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """A record as Spark's Kafka source shows it.

    Attributes:
        timestamp_ms: the column `timestamp`, in ms since the epoch; -1 without one.
        timestamp_type: 0 CreateTime, 1 LogAppendTime.
        headers: None without any; names may repeat.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[Header, ...] | None


class Digest(NamedTuple):
    """What two readers of a partition compare, in whatever order and pieces they read it.

    Attributes:
        count: of rows.
        total: the rows' hashes, added up modulo 2**64.
    """

    count: int = 0
    total: int = 0

    def plus(self, other: "Digest") -> "Digest":
        """The digest of both sets of rows together."""
        return Digest(self.count + other.count, (self.total + other.total) % 2**64)


def rows_of_batch(partition: TopicPartition, batch: bytes) -> list[Row]:
    """All records of one batch; none of a control batch."""
    header = read_header(batch)
    if header.is_control:
        return []
    return [
        Row(
            partition.topic,
            partition.partition,
            record.offset,
            record.key,
            record.value,
            record.timestamp,
            int(header.is_log_append_time),
            tuple(record.headers) or None,
        )
        for record in iter_records(batch)
    ]


class Committed(NamedTuple):
    """What a read_committed reader may see of some batches.

    Attributes:
        rows: records outside transactions, and of those that were committed.
        end: exclusive; the first offset of the first transaction that is undecided, or the end.
    """

    rows: list[Row]
    end: int


def committed_rows(partition: TopicPartition, batches: Iterable[bytes], end: int) -> Committed:
    """Validate transactions by their markers alone, never by an index.

    Args:
        partition: whose they are.
        batches: from before the first transaction on, ascending.
        end: exclusive; markers at or above it are not known.
    """
    rows: list[Row] = []
    open_rows: dict[int, list[Row]] = {}
    open_since: dict[int, int] = {}
    for batch in batches:
        header = read_header(batch)
        if header.base_offset >= end:
            break
        if not header.is_transactional:
            rows += rows_of_batch(partition, batch)
        elif not header.is_control:
            open_since.setdefault(header.producer_id, header.base_offset)
            open_rows.setdefault(header.producer_id, []).extend(rows_of_batch(partition, batch))
        else:
            done = open_rows.pop(header.producer_id, [])
            open_since.pop(header.producer_id, None)
            if control_type(next(iter_records(batch))) == ControlType.COMMIT:
                rows += done
    stable = min([end, *open_since.values()])
    return Committed(sorted(row for row in rows if row.offset < stable), stable)


def digests(rows: Iterable[Row]) -> dict[TopicPartition, Digest]:
    """Count and hash of each partition that has rows."""
    found: dict[TopicPartition, list[int]] = {}
    for row in rows:
        sums = found.setdefault(TopicPartition(row.topic, row.partition), [0, 0])
        sums[0] += 1
        summary = hashlib.blake2b(repr(tuple(row)).encode(), digest_size=8)
        sums[1] += int.from_bytes(summary.digest())
    return {
        partition: Digest(count, total % 2**64)
        for partition, (count, total) in sorted(found.items())
    }


def rows_of_arrow(batches: Iterable[Any]) -> Iterator[Row]:
    """Rows of Arrow record batches, or of a RecordBatchReader, in their order.

    Columns that were not asked for count as null; `headers` may be omitted.
    """
    for batch in batches:
        for found in batch.to_pylist():
            yield row_of_mapping(found)


def row_of_mapping(found: dict[str, Any]) -> Row:
    """A row of an Arrow batch, or `Row.asDict(recursive=True)` of Spark's (timestamps in UTC)."""
    headers = found.get("headers")
    return Row(
        found["topic"],
        found["partition"],
        found["offset"],
        as_bytes(found["key"]),
        as_bytes(found["value"]),
        milliseconds(found["timestamp"]),
        found["timestampType"],
        None
        if headers is None
        else tuple((header["key"], as_bytes(header["value"])) for header in headers),
    )


def milliseconds(at: datetime) -> int:
    """A time as ms since the epoch; one without a zone is taken as UTC."""
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _BEGIN) // timedelta(milliseconds=1)


def as_bytes(value: bytes | bytearray | None) -> bytes | None:
    """Spark gives bytearrays."""
    return None if value is None else bytes(value)
