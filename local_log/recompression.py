"""Batches in the topic's own codec, where `compression.type` is not `producer`.

Off the usual path: opens every record and compresses anew, as Kafka does.
"""

from kafka_protocol.records.batch import BatchHeader, read_header
from kafka_protocol.records.compression import Codec
from kafka_protocol.records.records import build_batch, iter_records
from local_log.append_check import INFLATED_BYTES_MAX, check_record_count, check_size
from local_log.config import LogConfig

_CODECS = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def wanted_codec(compression_type: str) -> int:
    """The codec a topic's batches are stored in; its `compression.type` is not `producer`."""
    return _CODECS[compression_type]


def recompressed(
    batch: bytearray | memoryview, header: BatchHeader, codec: int, config: LogConfig
) -> bytearray:
    """Build the same batch in another codec.

    Raises:
        InvalidRecordError: a record cannot be read.
        TooManyRecords, InflatedTooLargeError: it would hold the loop for too long.
        MessageTooLarge, RecordListTooLarge: it is too large in its new form, as in Kafka.
    """
    check_record_count(header)
    records = list(iter_records(batch, max_inflated_bytes=INFLATED_BYTES_MAX))
    built = build_batch(
        records,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        codec=codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    check_size(read_header(built), config)
    return built
