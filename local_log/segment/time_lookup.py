"""From a timestamp to an offset: by segment, index, batch headers, then one batch's records.

At most one batch is opened, the one whose header says that it holds the answer. A batch that cannot
be opened fails the look-up with an error naming partition and offset.
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
    """A record by its time: timestamp (ms), offset, and the epoch of the leader that wrote it."""

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
        segments: oldest first.
        timestamp: ms since the epoch.
        start: the log start offset; records before it do not count.
        topic_partition: for the error message.

    Raises:
        CorruptMessage: the batch that holds the answer cannot be opened.
    """
    for index, segment in enumerate(segments):
        ends_before = index + 1 < len(segments) and segments[index + 1].base_offset <= start
        if ends_before or segment.max_timestamp < timestamp:
            continue
        # Everything up to this offset is older; the target may be the next batch or later.
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

    As in Kafka the segment is chosen by its largest timestamp, records below `start` counted.

    Args:
        segments: oldest first.
        start: the log start offset; records before it are not given.
        topic_partition: for the error message.

    Raises:
        CorruptMessage: the batch that holds it cannot be opened.
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
        # Every record has the batch's time: the first that counts is the answer.
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
