"""Offset checkpoints of a log directory: one offset a partition, as text.

Recovery points, log start offsets, high watermarks and cleaner positions share the format.
"""

from collections.abc import Mapping

from kafka_protocol.files.checkpoint_text import dump_lines, integer, parse_lines
from kafka_protocol.types import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"


def dump(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Write the offsets in the mapping's order."""
    return dump_lines(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def parse(data: bytes) -> dict[TopicPartition, int]:
    """Read the offsets, in the file's order.

    Raises:
        CorruptFileError: The file is no checkpoint of version 0.
    """
    return {
        TopicPartition(topic, integer(partition)): integer(offset)
        for topic, partition, offset in parse_lines(data, 3)
    }
