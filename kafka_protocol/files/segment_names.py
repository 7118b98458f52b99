"""Names of the files and directories under a log directory."""

import re

from kafka_protocol.types import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
PRODUCER_SNAPSHOT = ".snapshot"
DELETED = ".deleted"

NAME_MAX_BYTES = 255

_SEGMENT = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_PARTITION = re.compile(r"(.+)-(\d+)")
_RENAMED = re.compile(r"(.+)-(\d+)\.([0-9a-f]{32})-(delete|future|stray)")


def segment_file(base_offset: int, suffix: str) -> str:
    """`base_offset` in 20 digits and the suffix, which begins with a dot."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Base offset and suffix of a segment's file; None for any other name."""
    match = _SEGMENT.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def partition_dir(tp: TopicPartition) -> str:
    """`<topic>-<partition>`."""
    return f"{tp.topic}-{tp.partition}"


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Return the partition of a directory; None for a name of another kind."""
    match = _PARTITION.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def renamed_dir(tp: TopicPartition, unique: bytes, suffix: str) -> str:
    """Name of a renamed directory: `<topic>-<partition>.<32 hex>-<suffix>`.

    Args:
        tp: The partition.
        unique: 16 random bytes.
        suffix: `delete`, `stray` or `future`.

    Returns:
        A name of at most 255 bytes; only the topic is cut.
    """
    tail = f"-{tp.partition}.{unique.hex()}-{suffix}"
    return tp.topic[: NAME_MAX_BYTES - len(tail)] + tail


def parse_renamed_dir(name: str) -> tuple[TopicPartition, str] | None:
    """Partition and suffix of a renamed directory; its topic may be cut. None for other names."""
    match = _RENAMED.fullmatch(name)
    return (TopicPartition(match[1], int(match[2])), match[4]) if match else None
