"""Names of things that every floor speaks of."""

from typing import NamedTuple

ZERO_UUID = bytes(16)

_READ_COMMITTED = 1


def is_read_committed(isolation_level: int) -> bool:
    """Read the isolation level of a Fetch or ListOffsets request.

    DIFFERS: a level that Kafka does not know fails the whole request there; here it is read
    uncommitted.
    """
    return isolation_level == _READ_COMMITTED


class TopicPartition(NamedTuple):
    """A partition by its topic's name: what clients say."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id (16 raw bytes), which outlives its name."""

    topic_id: bytes
    partition: int
    topic: str

    @property
    def topic_partition(self) -> TopicPartition:
        """The same partition by name."""
        return TopicPartition(self.topic, self.partition)


class EpochEntry(NamedTuple):
    """One line of an epoch chain: `epoch` began at `start_offset` (inclusive)."""

    epoch: int
    start_offset: int
