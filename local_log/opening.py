"""Batches whose records are looked at before they are appended.

Off the usual path: where each record is judged (compacted topics, a bound of its timestamp),
and where `compression.type` is not `producer` and the batch has another codec: it is compressed
anew, as in Kafka. A large batch takes tens of milliseconds: a thread opens it, the event loop only
a short one.
"""

from enum import Enum, auto

from kafka_protocol.records.batch import BatchHeader, read_header
from kafka_protocol.records.compression import Codec
from kafka_protocol.records.records import build_batch, iter_records
from local_log.append_check import (
    INFLATED_BYTES_MAX,
    check_record_count,
    check_records,
    check_size,
)
from local_log.config import LogConfig

SHORT_BYTES = 4096
SHORT_RECORDS = 1000
"""Up to both a batch is opened where it is appended, in some milliseconds at most: by its worst
codec it inflates a thousandfold."""


class Opening(Enum):
    """Who opens a batch."""

    AT_ONCE = auto()
    """The append, however long it takes."""
    IF_SHORT = auto()
    """The append, if it is short; else the append raises `MustBeOpened`."""
    DONE = auto()
    """It was opened already."""


_CODECS = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def _level(codec: int, config: LogConfig) -> int | None:
    """The level of a codec that has some (KIP-390)."""
    return {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(Codec(codec))


def is_short(header: BatchHeader) -> bool:
    """Whether the event loop may open the batch itself."""
    return header.size_bytes <= SHORT_BYTES and header.record_count <= SHORT_RECORDS


def opened(
    batch: bytearray | memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> bytearray | memoryview:
    """Judge the records of a batch whose header is right, and build it in the topic's codec.

    Returns:
        The batch to be appended: itself where it has the right codec.

    Raises:
        InvalidRecord, InvalidTimestamp: of a record.
        InvalidRecordError: a record cannot be read.
        TooManyRecords, InflatedTooLargeError: a thread would be busy with it for too long.
        MessageTooLarge, RecordListTooLarge: it is too large in its new form, as in Kafka.
    """
    if config.judges_records:
        check_records(batch, header, config, now_ms)
    if config.compression_type != "producer":
        codec = _CODECS[config.compression_type]
        if codec != header.codec:
            return _recompressed(batch, header, codec, config)
    return batch


def _recompressed(
    batch: bytearray | memoryview, header: BatchHeader, codec: int, config: LogConfig
) -> bytearray:
    check_record_count(header)
    records = list(iter_records(batch, max_inflated_bytes=INFLATED_BYTES_MAX))
    built = build_batch(
        records,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        codec=codec,
        level=_level(codec, config),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    check_size(read_header(built), config)
    return built
