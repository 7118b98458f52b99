"""Names and types that every package uses."""

from typing import Final, NamedTuple

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""One partition, the log of the quorum (KIP-500); no client writes it."""

REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
"""Metadata of the remote segments (KIP-405); an ordinary topic that only tiers write."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Consumer groups and the offsets that they committed; only brokers write it."""

NO_GROUP: Final = "tidemark-no-group"
"""Group of librdkafka clients that use none. Its consumer must name a group and looks up its
coordinator, even if partitions are assigned and nothing is committed."""

ZERO_UUID = bytes(16)

_READ_COMMITTED = 1


def is_read_committed(isolation_level: int) -> bool:
    """Read the isolation level of a Fetch or ListOffsets request.

    DIFFERS: a level that Kafka does not know fails the whole request there; here it is read
    uncommitted.
    """
    return isolation_level == _READ_COMMITTED


class TopicPartition(NamedTuple):
    """A partition by its topic's name, as most clients name it."""

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
