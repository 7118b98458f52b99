"""The header of a record batch (magic 2): read, checked and patched in place.

The hot path reads nothing else of a batch. The checksum does not cover bytes 0-7 (base offset) and
12-15 (leader epoch). So a broker sets them without a change of the rest.
This module does not read records, and allocates nothing by a length that was not compared with the
buffer.

Source: KIP-98 (message format v2); formats of Apache Kafka 4.3.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from kafka_protocol.errors import UnsupportedCodecError

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
"""Bytes before the first record."""

LOG_OVERHEAD = 12
"""Bytes of base offset and batch length, which the batch length does not count."""

MAGIC = 2
"""The only supported format; 0 and 1 are the old message sets."""

MAGIC_POSITION = 16
CRC_START = 21
"""First byte under the checksum, which covers the rest of the batch."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

HEADER = Struct(">qiibIhiqqqhii")
"""The fields of `BatchHeader`, for loops in which an object for each batch costs too much."""

_LENGTH = Struct(">i")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")

_unpack_header = HEADER.unpack_from


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records, in their order on disk.

    Attributes:
        base_offset: Offset of the first record, assigned by the broker.
        batch_length: Bytes after this field (the whole batch is 12 more).
        last_offset_delta: Last offset minus base offset; kept by compaction.
        base_timestamp: Timestamp of the first record, in ms since 1970; the delete horizon if that
            bit is set; -1 in a batch without timestamps.
        max_timestamp: Largest timestamp of the records, or the append time (LogAppendTime).
        record_count: Records inside; 0 only where compaction emptied the batch.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, as its header claims."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record (inclusive)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """First offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 mean nothing."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """True if `max_timestamp` is the broker's clock and holds for every record."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction (its data or its marker)."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """True if the records are markers that no consumer sees."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        """True if `base_timestamp` is the time from which tombstones may go."""
        return bool(self.attributes & DELETE_HORIZON_FLAG)


def read_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; nothing of it is checked.

    Raises:
        struct.error: Fewer than 61 bytes are left.
    """
    return BatchHeader._make(_unpack_header(buf, position))


def pack_header(header: BatchHeader) -> bytes:
    """The 61 bytes of a header, checksum as given (`write_crc` sets the right one)."""
    return HEADER.pack(*header)


def crc32c_of(buf: Buffer, position: int, size: int) -> int:
    """Compute the CRC-32C of `size` bytes from `position`, without copying them."""
    return crc32c(memoryview(buf)[position : position + size])


def has_valid_crc(buf: Buffer, position: int, header: BatchHeader) -> bool:
    """True if the batch at `position` is whole and its checksum is right."""
    end = position + header.size_bytes
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or end > len(buf):
        return False
    return crc32c(memoryview(buf)[position + CRC_START : end]) == header.crc


def patch_offset_and_epoch(
    buf: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Set base offset and leader epoch; the checksum does not cover these fields."""
    _BASE_OFFSET.pack_into(buf, position, base_offset)
    _LEADER_EPOCH.pack_into(buf, position + 12, leader_epoch)


def write_crc(buf: bytearray | memoryview, position: int, size_bytes: int) -> int:
    """Compute and store the checksum of the batch of `size_bytes` (whole) at `position`."""
    crc = crc32c(memoryview(buf)[position + CRC_START : position + size_bytes])
    _CRC.pack_into(buf, position + 17, crc)
    return crc


def set_log_append_time(
    buf: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Stamp the batch with the broker's time: flag, max timestamp, checksum again.

    The records' own deltas stay: readers take max timestamp for all of them.
    """
    _ATTRIBUTES.pack_into(buf, position + 21, header.attributes | LOG_APPEND_TIME_FLAG)
    _MAX_TIMESTAMP.pack_into(buf, position + 35, timestamp_ms)
    write_crc(buf, position, header.size_bytes)


def iter_batches(
    buf: Buffer, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Walk the whole batches in `buf[start:end]`.

    The walk stops before a batch that is cut, and at an impossible length, because the next batch
    cannot be found then. Checksums are not checked.

    Yields:
        Position of the batch's first byte in `buf`, and its header.
    """
    stop = len(buf) if end is None else end
    position = start
    while position + HEADER_SIZE <= stop:
        header = BatchHeader._make(_unpack_header(buf, position))
        if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
            return
        following = position + header.batch_length + LOG_OVERHEAD
        if following > stop:
            return
        yield position, header
        position = following


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, number: int) -> "Codec":
        """The codec of this number.

        Raises:
            UnsupportedCodecError: There is none.
        """
        try:
            return cls(number)
        except ValueError:
            raise UnsupportedCodecError(number) from None

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec that configurations call `name` (`none`, also `uncompressed`).

        Raises:
            ValueError: There is none.
        """
        if name == "uncompressed":
            return cls.NONE
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(f"unknown compression type {name!r}") from None


XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
"""In front of the blocks of snappy; each block has its length before it."""
