"""Which log it is, and where its files are."""

from pathlib import Path
from typing import NamedTuple

from kafka_protocol.types import TopicPartition
from runtime.disk import Disk


class LogPlace(NamedTuple):
    """See the module.

    Attributes:
        directory: of this partition.
    """

    topic_partition: TopicPartition
    directory: Path
    disk: Disk
