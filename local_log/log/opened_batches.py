"""Batches whose records are decoded before the append.

This is needed if each record is validated (compacted topics, a limit of timestamps). It is also
needed if `compression.type` is another codec than the batch's, which is then compressed again, as
in Kafka. A large batch takes tens of milliseconds: a pool thread decodes it; the event loop decodes
only short ones.
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
"""Within all three limits the append decodes a batch itself, in a few milliseconds at most."""


class Opening(Enum):
    """Place where a batch is decoded."""

    AT_ONCE = auto()
    """In the append, for a batch of any size."""
    IF_SHORT = auto()
    """In the append, if it is short; otherwise the append raises `MustBeOpened`."""
    DONE = auto()
    """Done already, before the append."""


def _level(codec: Codec, config: LogConfig) -> int | None:
    """Compression level of a codec that has levels (KIP-390); otherwise None."""
    return {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)


def is_short(header: BatchHeader) -> bool:
    """True if the event loop may try to decode the batch."""
    return header.size_bytes <= SHORT_BYTES and header.record_count <= SHORT_RECORDS


def opened_if_short(
    batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> bytearray | memoryview:
    """Run `opened` for a short batch.

    Raises:
        MustBeOpened: The batch is not short.
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
    """Validate the records of a batch with a valid header, and encode it in the topic's codec.

    It is inflated and deflated in pieces: besides the batch and its result only some hundred
    kilobytes are held, and the state of the codec.

    Returns:
        The batch to append: `batch` itself if its codec is right.

    Raises:
        InvalidRecord, InvalidTimestamp: For a record.
        TooManyRecords, TooManyHeadersError, InflatedTooLargeError: It would keep a thread busy for
            too long.
        MessageTooLarge, RecordListTooLarge: The result is too large, as in Kafka.
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
    """Encode the same records in another codec, in pieces."""
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
