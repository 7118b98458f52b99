"""Checks whether a batch may be appended. Pure: reads headers, and records only if necessary.

Records are decoded on compacted topics (each needs a key) and with
`message.timestamp.before.max.ms` (the header has no smallest timestamp). Otherwise a batch with a
valid header and checksum is accepted; its readers find errors in its records. See
docs/decisions/produce-reads-headers-only.md.
"""

from struct import Struct
from typing import NamedTuple

from kafka_protocol.errors import InvalidRecordError
from kafka_protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    crc32c_of,
    read_header,
)
from kafka_protocol.records.compression import inflated
from kafka_protocol.records.walk import Window, glimpses
from local_log.config import LONG_MAX, LogConfig
from local_log.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    TooManyRecords,
    UnsupportedCompression,
)
from local_log.log.results import Ended

Buffer = bytes | bytearray | memoryview

_unpack_length = Struct(">i").unpack_from
_LENGTH_POSITION = 8
_OLDEST_LENGTH_MIN = 14
"""No message format has a batch with a smaller length field."""
_RECORD_BYTES_MIN = 7  # length, attributes, two deltas, key, value and headers: a byte each
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS = 0x20
# Integers: a member look-up takes longer than the comparison.
_GZIP, _SNAPPY = int(Codec.GZIP), int(Codec.SNAPPY)
_LZ4, _ZSTD = int(Codec.LZ4), int(Codec.ZSTD)
_SNAPPY_FRAMED = b"\xff\x06\x00\x00sNaPpY"
INFLATED_BYTES_MAX = 32 << 20
"""Limit of an inflated batch; it costs time, not memory."""
OPENED_RECORDS_MAX = 200_000
"""Decoding takes about a microsecond per record, with the interpreter's lock.

Usual batches of the default `max.message.bytes` have fewer records, even uncompressed. After
MESSAGE_TOO_LARGE a producer splits its batch.
"""


def check_framing(batch: Buffer) -> BatchHeader:
    """Check that the bytes are exactly one whole batch with a valid checksum.

    The order of the checks is Kafka's, and decides the error of a batch with several faults. A
    batch with missing bytes is InvalidRecord; any impossible length is CorruptMessage. DIFFERS: a
    few such lengths get UNKNOWN_SERVER_ERROR from Kafka.

    Raises:
        InvalidRecord: No whole batch, an old message format, or more than one batch.
        CorruptMessage: An unknown magic, an impossible length, a wrong checksum.
    """
    size = len(batch)
    if size < LOG_OVERHEAD:
        raise InvalidRecord(f"no record batch in {size} bytes")
    (length,) = _unpack_length(batch, _LENGTH_POSITION)
    claimed = length + LOG_OVERHEAD
    if length < _OLDEST_LENGTH_MIN:
        raise CorruptMessage(f"no batch has {claimed} bytes")
    if size <= MAGIC_POSITION:
        raise InvalidRecord(f"the batch claims {claimed} bytes, {size} are there")
    magic = batch[MAGIC_POSITION]
    if magic != MAGIC:
        if magic in (0, 1):
            raise InvalidRecord(f"message format {magic} is no longer taken")
        raise CorruptMessage(f"magic {magic if magic < 128 else magic - 256} does not exist")
    if claimed > size:
        raise InvalidRecord(f"the batch claims {claimed} bytes, {size} are there")
    if claimed < HEADER_SIZE:
        raise CorruptMessage(f"a batch cannot have {claimed} bytes")
    header = read_header(batch)
    if crc32c_of(batch, CRC_START, claimed - CRC_START) != header.crc:
        raise CorruptMessage(f"checksum {header.crc:#010x} of the batch is wrong")
    if claimed != size:
        raise InvalidRecord(f"{size - claimed} bytes after the only batch allowed")
    return header


def next_given(
    batches: memoryview, position: int, leader_epoch: int
) -> tuple[memoryview, BatchHeader] | Ended:
    """Return the next batch from a leader, checked alone; or why none can be written.

    Args:
        batches: Of the leader.
        position: First byte not yet taken.
        leader_epoch: Of the leader; the leader itself may have later batches by now.

    Raises:
        CorruptMessage: The bytes are no batch, or a damaged one.
    """
    left = len(batches) - position
    if not left:
        return Ended.ALL
    if left < HEADER_SIZE:
        return Ended.CUT
    header = read_header(batches, position)
    size = header.size_bytes
    if header.magic == MAGIC and size >= HEADER_SIZE:
        if size > left:
            return Ended.CUT
        if header.partition_leader_epoch > leader_epoch:
            return Ended.NEWER_EPOCH
    batch = batches[position : position + max(size, HEADER_SIZE)]
    try:
        check_framing(batch)
    except (CorruptMessage, InvalidRecord) as error:
        raise CorruptMessage(f"batch at offset {header.base_offset}: {error}") from error
    if header.last_offset_delta < 0:
        raise CorruptMessage(f"batch at offset {header.base_offset}: its last is before its first")
    return batch, header


def check_size(size: int, config: LogConfig) -> None:
    """Check the size of a batch, as received or compressed again.

    Raises:
        MessageTooLarge, RecordListTooLarge.
    """
    if size > config.max_message_bytes:
        raise MessageTooLarge(size_bytes=size, max_bytes=config.max_message_bytes)
    if size > config.segment_bytes:
        raise RecordListTooLarge(size_bytes=size, segment_bytes=config.segment_bytes)


def check_client_batch(batch: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Check the header of a producer's batch; the framing is checked already.

    Raises:
        InvalidRecord, MessageTooLarge, RecordListTooLarge, InvalidTimestamp,
        UnsupportedCompression.
    """
    check_size(header.batch_length + LOG_OVERHEAD, config)
    if header.base_offset != 0:
        raise InvalidRecord(f"a producer's batch starts at offset 0, not {header.base_offset}")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"record count {header.record_count} and last offset delta "
            f"{header.last_offset_delta} do not fit"
        )
    attributes = header.attributes
    if attributes & CONTROL_FLAG:
        raise InvalidRecord("a producer cannot write control batches")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(
            f"producer {header.producer_id} without sequence or epoch: "
            f"{header.base_sequence}, {header.producer_epoch}"
        )
    codec = attributes & CODEC_MASK
    if codec:
        _check_codec(batch, codec)
    elif header.record_count * _RECORD_BYTES_MIN > len(batch) - HEADER_SIZE:
        raise InvalidRecord(
            f"{header.record_count} records cannot be in {len(batch) - HEADER_SIZE} bytes"
        )
    if not config.stamps_append_time:
        _check_timestamps(header, config, now_ms)


def _check_codec(batch: Buffer, codec: int) -> None:
    """Refuse frames that Java's consumers cannot read, by their first bytes."""
    if codec > _ZSTD:
        raise UnsupportedCompression(codec)
    start = bytes(batch[HEADER_SIZE : HEADER_SIZE + 10])
    if codec == _LZ4:
        if start[:4] != _LZ4_MAGIC or len(start) < 5:
            raise InvalidRecord("not an lz4 frame")
        if not start[4] & _LZ4_INDEPENDENT_BLOCKS:
            raise InvalidRecord("lz4 frame with dependent blocks: consumers in Java cannot read it")
    elif codec == _SNAPPY and start == _SNAPPY_FRAMED:
        raise InvalidRecord("snappy in the framing format: consumers in Java cannot read it")
    elif codec == _GZIP and start[:2] != b"\x1f\x8b":
        raise InvalidRecord("not a gzip member")


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.attributes & LOG_APPEND_TIME_FLAG:
        raise InvalidTimestamp("a producer cannot set the timestamp type LogAppendTime")
    newest = header.max_timestamp
    if newest < 0:
        if newest != -1:
            raise InvalidTimestamp(f"timestamp {newest} ms is negative")
        return
    if newest - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {newest} ms is more than {config.message_timestamp_after_max_ms} ms "
            f"after {now_ms}"
        )


class Checked(NamedTuple):
    """Facts about the records of a valid batch.

    Attributes:
        max_timestamp: Of the records.
        size_bytes: Of the records, inflated.
    """

    max_timestamp: int
    size_bytes: int


def check_records(
    batch: Buffer,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
) -> Checked:
    """Check each record of a batch with a valid header.

    DIFFERS: for offsets with gaps Kafka assigns new ones to compressed records, and accepts
    uncompressed ones unchanged: readers then skip records.

    Raises:
        InvalidRecord: With the wrong records.
        InvalidTimestamp, TooManyRecords, InflatedTooLargeError, TooManyHeadersError: The batch
            breaks a limit.
    """
    if header.record_count > OPENED_RECORDS_MAX:
        raise TooManyRecords(count=header.record_count, max_count=OPENED_RECORDS_MAX)
    oldest, newest = -LONG_MAX, LONG_MAX
    if config.validates_records and not config.stamps_append_time:
        oldest = now_ms - config.message_timestamp_before_max_ms
        newest = now_ms + config.message_timestamp_after_max_ms
    keyless: list[tuple[int, str]] = []
    count, latest = 0, NO_TIMESTAMP
    body = memoryview(batch)[HEADER_SIZE:]
    try:
        window = Window(inflated(header.codec, body, max_bytes=inflated_bytes_max))
        for offset, timestamp, has_key in glimpses(window, header):
            if offset != header.base_offset + count:
                said = f"record {count} has an offset delta of {offset - header.base_offset}"
                raise InvalidRecord(said, ((count, said),))
            if not has_key and config.compacts:
                keyless.append((count, "a compacted topic takes no record without a key"))
            if timestamp > latest:
                latest = timestamp
            if not oldest <= timestamp <= newest and timestamp != NO_TIMESTAMP:
                raise InvalidTimestamp(
                    f"timestamp {timestamp} ms of record {count} is outside [{oldest}, {newest}]"
                )
            count += 1
    except InvalidRecordError as error:
        raise InvalidRecord(str(error), ((count, str(error)),)) from error
    if keyless:
        raise InvalidRecord("records without a key on a compacted topic", tuple(keyless))
    return Checked(latest, window.taken_bytes)
