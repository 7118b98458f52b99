"""Batches whose records are looked at before they are appended.

Off the usual path: where each record is validated (compacted topics, a bound of its timestamp),
and where `compression.type` is not `producer` and the batch has another codec: it is compressed
again, as in Kafka. A large batch takes tens of milliseconds: a thread opens it, the event loop only
a short one.
"""

from enum import Enum, auto

from kafka_protocol.errors import InflatedTooLargeError
from kafka_protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    pack_header,
    write_crc,
)
from kafka_protocol.records.compression import deflated, inflated
from local_log.config import LogConfig
from local_log.errors import MustBeOpened
from local_log.log.append_check import INFLATED_BYTES_MAX, Checked, check_records, check_size

SHORT_BYTES = 4096
SHORT_RECORDS = 1000
SHORT_INFLATED_BYTES = 256 * 1024
"""Up to all three a batch is opened where it is appended, in a few milliseconds at most."""


class Opening(Enum):
    """Who opens a batch."""

    AT_ONCE = auto()
    """The append, however long it takes."""
    IF_SHORT = auto()
    """The append, if it is short; else the append raises `MustBeOpened`."""
    DONE = auto()
    """It was opened already."""


def _level(codec: Codec, config: LogConfig) -> int | None:
    """The level of a codec that has some (KIP-390)."""
    return {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)


def is_short(header: BatchHeader) -> bool:
    """Whether the event loop may try to open the batch itself."""
    return header.size_bytes <= SHORT_BYTES and header.record_count <= SHORT_RECORDS


def opened_if_short(
    batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> bytearray | memoryview:
    """As `opened`, where that takes a moment.

    Raises:
        MustBeOpened: it takes longer.
    """
    if not is_short(header):
        raise MustBeOpened
    try:
        return opened(batch, header, config, now_ms, inflated_bytes_max=SHORT_INFLATED_BYTES)
    except InflatedTooLargeError as error:
        raise MustBeOpened from error


def opened(
    batch: bytearray | memoryview,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    *,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
) -> bytearray | memoryview:
    """Validate the records of a batch whose header is right, and build it in the topic's codec.

    It is read and built in pieces: beside the batch and what becomes of it some hundred kilobytes
    are held, and what its codec must remember.

    Returns:
        The batch to be appended: itself where it has the right codec.

    Raises:
        InvalidRecord, InvalidTimestamp: of a record.
        TooManyRecords, TooManyHeadersError, InflatedTooLargeError: a thread would be busy with it
            for too long.
        MessageTooLarge, RecordListTooLarge: it is too large in its new form, as in Kafka.
    """
    codec = Codec.of(header.codec)
    if config.compression_type != "producer":
        codec = Codec.named(config.compression_type)
    if codec == header.codec and not config.validates_records:
        return batch
    checked = check_records(batch, header, config, now_ms, inflated_bytes_max)
    return batch if codec == header.codec else _recompressed(batch, header, codec, config, checked)


def _recompressed(
    batch: bytearray | memoryview,
    header: BatchHeader,
    codec: Codec,
    config: LogConfig,
    checked: Checked,
) -> bytearray:
    """The same records in another codec, inflated and deflated in pieces."""
    body = memoryview(batch)[HEADER_SIZE:]
    pieces = inflated(header.codec, body, max_bytes=checked.size_bytes)
    built, level = bytearray(HEADER_SIZE), _level(codec, config)
    for piece in deflated(codec, pieces, level=level, size_bytes=checked.size_bytes):
        check_size(len(built) + len(piece), config)
        built += piece
    built[:HEADER_SIZE] = pack_header(
        header._replace(
            batch_length=len(built) - LOG_OVERHEAD,
            attributes=codec | header.attributes & TRANSACTIONAL_FLAG,
            max_timestamp=checked.max_timestamp,
        )
    )
    write_crc(built, 0, len(built))
    return built
