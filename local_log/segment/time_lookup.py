"""Finds an offset by timestamp: by segment, index, batch headers, then one batch's records.

Records are decoded only in a batch whose header says that it has the answer. If that batch cannot
be decoded, the lookup fails with an error that names the partition and the offset.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kafka_protocol.errors import KafkaError
from kafka_protocol.records.batch import BatchHeader
from kafka_protocol.records.walk import glimpse_records
from kafka_protocol.types import TopicPartition
from local_log.errors import CorruptMessage
from local_log.segment.segment import LogSegment


class TimestampedOffset(NamedTuple):
    """A record's timestamp (ms) and offset, and the epoch of the leader that wrote it."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: Sequence[LogSegment],
    timestamp: int,
    *,
    start: int,
    topic_partition: TopicPartition,
) -> TimestampedOffset | None:
    """Find the first record at or above offset `start` whose timestamp is >= `timestamp`.

    Args:
        segments: Oldest first.
        timestamp: Ms since the epoch.
        start: The log start offset; records below it are ignored.
        topic_partition: For the error message.

    Returns:
        The record; None if no such record exists.

    Raises:
        CorruptMessage: The batch with the answer cannot be decoded.
    """
    for index, segment in enumerate(segments):
        ends_before = index + 1 < len(segments) and segments[index + 1].base_offset <= start
        if ends_before or segment.max_timestamp < timestamp:
            continue
        # Every record up to this offset is older; the target is in a later one.
        known_older = segment.time_index.lookup(timestamp).offset
        position = segment.offset_index.lookup(max(known_older, start)).position
        for at, header in segment.batches(position):
            if header.max_timestamp < timestamp or header.last_offset < start:
                continue
            found = _first_in_batch(segment, at, header, timestamp, start, topic_partition)
            if found is not None:
                return found
    return None


def newest(
    segments: Sequence[LogSegment], *, start: int, topic_partition: TopicPartition
) -> TimestampedOffset | None:
    """Find the first record that has the largest timestamp of all; None if no record has one.

    The segment with the largest timestamp is searched, even if that record is below `start`, as in
    Kafka. Then the result is a record of that batch at or above `start`, or None.

    Args:
        segments: Oldest first.
        start: The log start offset; records below it are not returned.
        topic_partition: For the error message.

    Raises:
        CorruptMessage: The batch with the record cannot be decoded.
    """
    best: LogSegment | None = None
    for segment in segments:
        if segment.max_timestamp >= 0 and (
            best is None or segment.max_timestamp > best.max_timestamp
        ):
            best = segment
    if best is None:
        return None
    found = best.find_batch(best.offset_of_max_timestamp)
    if found is None:
        return None
    at, header = found
    return _first_in_batch(best, at, header, header.max_timestamp, start, topic_partition)


def _first_in_batch(
    segment: LogSegment,
    position: int,
    header: BatchHeader,
    timestamp: int,
    start: int,
    topic_partition: TopicPartition,
) -> TimestampedOffset | None:
    epoch = header.partition_leader_epoch
    if header.is_log_append_time:
        # Every record has the batch's timestamp, so the first at or above `start` is the answer.
        offset = max(header.base_offset, start)
        return TimestampedOffset(header.max_timestamp, offset, epoch)
    try:
        for record in glimpse_records(segment.read_bytes(position, header.size_bytes)):
            if record.timestamp >= timestamp and record.offset >= start:
                return TimestampedOffset(record.timestamp, record.offset, epoch)
    except KafkaError as error:
        raise CorruptMessage(
            f"{topic_partition}: the batch at offset {header.base_offset} cannot be read: {error}"
        ) from error
    return None
