"""Names and paths of the files of a partition directory."""

from pathlib import Path

from kafka_protocol.files.segment_names import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file,
    segment_file,
)

__all__ = [
    "CLEANED",
    "DELETED",
    "EPOCH_CHECKPOINT",
    "LOG",
    "OFFSET_INDEX",
    "PARTITION_METADATA",
    "PRODUCER_SNAPSHOT",
    "SEGMENT_SUFFIXES",
    "SWAP",
    "TIME_INDEX",
    "TXN_INDEX",
    "parse_segment_file",
    "path_of",
    "segment_file",
]

CLEANED = ".cleaned"
SWAP = ".swap"
EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)


def path_of(directory: Path, base_offset: int, suffix: str) -> Path:
    """Path of one file of the segment (or snapshot) at `base_offset`."""
    return directory / segment_file(base_offset, suffix)
