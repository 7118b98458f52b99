"""What the manager asks of `__remote_log_metadata`, as a port.

One thread calls all methods but `append` and `refused`; callbacks of appends and all events come
out of `poll`, in that thread. Appends of one port to one metadata partition land in the order of
the calls, or not at all (FIFO per writer); the fence argument needs it. A port never retries beyond
that promise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition
from rlmm.store import Position
from runtime.health_reasons import HealthReason, HealthText


def damaged(partition: int, offset: int) -> HealthText:
    """That a metadata partition cannot be read on from `offset`."""
    return HealthReason.METADATA_DAMAGED.text(
        name=f"{REMOTE_LOG_METADATA_TOPIC}-{partition}",
        offset=offset,
        topic=REMOTE_LOG_METADATA_TOPIC,
        partition=partition,
    )


def without_end(partition: int, seconds: int) -> HealthText:
    """That nobody says up to where a metadata partition must be read."""
    name = f"{REMOTE_LOG_METADATA_TOPIC}-{partition}"
    return HealthReason.METADATA_END.text(name=name, seconds=seconds)


class TopicUnavailableError(TidemarkError):
    """The topic does not exist yet, or nobody answers for it now."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record that was read, in the order of its partition."""

    partition: int
    offset: int
    leader_epoch: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ReachedEnd:
    """All of the partition below `offset` was read."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Diverged:
    """The position lies beyond the log's end, or its leader epoch is not the log's there.

    What was read from this partition is not what the topic says; it must be read again.
    """

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The partition cannot be read on: a batch is damaged.

    Said again as long as that is so; other events of the partition say that it no longer is.

    Attributes:
        reason: for people, with partition, offset and remedy.
    """

    partition: int
    reason: HealthText


TopicEvent = TopicRecord | ReachedEnd | Diverged | Unreadable


@dataclass(frozen=True, slots=True)
class Appended:
    """The append is durable at `offset`; -1 where the broker could not say which."""

    offset: int


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """The append failed; with `maybe_written` it may be in the log, or land there later."""

    reason: str
    maybe_written: bool


AppendResult = Appended | AppendFailed


class TopicPort(Protocol):
    """A client of the metadata topic.

    Attributes:
        failure: why it can never append again, None while it can.
    """

    failure: str | None

    def refused(self) -> HealthText:
        """Which brokers refused these clients of late, and why; `HEALTHY` where none did.

        It is called from any thread, and never waits.
        """
        ...

    def connect(self) -> int:
        """Look the topic up; returns its number of partitions.

        Raises:
            TopicUnavailableError: try again later.
        """
        ...

    def assign(self, positions: Mapping[int, Position]) -> None:
        """Read exactly these partitions from now on, each from its position.

        A position that the log does not confirm is reported as `Diverged`, then and whenever the
        partition gets a new leader epoch; that partition is not read on. Where a partition is read
        to its end, `ReachedEnd` says so, at least once after each call of this.
        """
        ...

    def append(self, partition: int, value: bytes, on_done: Callable[[AppendResult], None]) -> None:
        """Append a record (key null); any thread may call.

        `on_done` is called once: from `poll`, or at once where the append cannot be tried.
        """
        ...

    def ask_end(self, partition: int, on_done: Callable[[int | None], None]) -> None:
        """Ask the log for its end as it is now: the first offset that cannot be read yet.

        `on_done` is called once, from `poll`; with None where nobody answered.
        """
        ...

    def poll(self, timeout_ms: int) -> list[TopicEvent]:
        """Wait for events for at most `timeout_ms`; runs callbacks of appends."""
        ...

    def close(self) -> None:
        """Let go of connections; appends without a result get none."""
        ...


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 with seed 0x9747b28c; the result is not negative (u32)."""
    mask, magic = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * magic & mask
        k = (k ^ k >> 24) * magic & mask
        h = (h * magic & mask) ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * magic & mask
    h = (h ^ h >> 13) * magic & mask
    return h ^ h >> 15


def metadata_partition_for(partition: TopicIdPartition, partition_count: int) -> int:
    """The metadata partition in which all records of a user partition lie.

    Kafka's rule: murmur2 of the 4 bytes of Java's `Objects.hash(id's low half, high half,
    partition)`.
    """
    low = int.from_bytes(partition.topic_id[8:], "big")
    high = int.from_bytes(partition.topic_id[:8], "big")
    h = 31 * (31 * (31 + _fold(low)) + _fold(high)) + partition.partition
    key = (h & 0xFFFFFFFF).to_bytes(4, "big")
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def _fold(half: int) -> int:
    return (half ^ half >> 32) & 0xFFFFFFFF
