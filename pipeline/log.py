"""The tiered log as readers see it; `pipeline.opening` gives one for a cluster or a bucket alone.

Answers are consistent within one call. A log may be asked from one thread at a time. Must not
know: Arrow, Spark.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from kafka_protocol.types import TopicPartition
from pipeline.values import OffsetRange, Plan, Source, SplitLimits


class TieredLog(Protocol):
    """Topics, their offsets, and plans to read them.

    Every method may raise ClusterError or StoreUnreachableError.
    """

    @property
    def source(self) -> Source:
        """The source of the log, which goes to executors beside the splits."""
        ...

    def topics(self) -> list[str]:
        """Names of all topics, sorted."""
        ...

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of these topics, sorted.

        Raises:
            UnknownTopicError: there is no such topic; names the nearest.
        """
        ...

    def topic_id(self, topic: str) -> bytes:
        """The 16 bytes of its id; a topic that is deleted and made again has another.

        Raises:
            UnknownTopicError: as `partitions`.
        """
        ...

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start of each (inclusive)."""
        ...

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each (exclusive).

        The high watermark, the last stable offset for READ_COMMITTED, the remote end for a bucket
        alone. One request a broker, whatever the number of partitions.
        """
        ...

    def remote_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end (exclusive) of what the remote tier holds of each; the log start if nothing."""
        ...

    def epochs_before(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The leader epoch of the record before each offset; None where it is unknown.

        Offset and epoch name a record: where another epoch is found later, the log was replaced.
        """
        ...

    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset of each whose record is not earlier; None where there is none."""
        ...

    def plan(self, ranges: Mapping[TopicPartition, OffsetRange], limits: SplitLimits) -> Plan:
        """Say which bytes hold these offsets.

        Raises:
            DataLossError: some are outside the log, or in no tier (and that is to be an error).
        """
        ...

    def close(self) -> None:
        """Let go of connections and of the plugin."""
        ...
