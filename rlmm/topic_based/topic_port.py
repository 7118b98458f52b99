"""The manager's access to `__remote_log_metadata`, as a port.

One thread calls all methods except `append` and `refused`. Callbacks of appends and all events come
out of `poll`, in that thread. Appends of one port to one metadata partition land in the order of
the calls, or not at all (FIFO per writer); the fence depends on it. A port never retries in a way
that breaks this promise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition
from rlmm.store import Position
from runtime.health_reasons import HealthReason, HealthText


def damaged(partition: int, offset: int) -> HealthText:
    """The health reason of a metadata partition that cannot be read from `offset` on."""
    return HealthReason.METADATA_DAMAGED.text(
        name=f"{REMOTE_LOG_METADATA_TOPIC}-{partition}",
        offset=offset,
        topic=REMOTE_LOG_METADATA_TOPIC,
        partition=partition,
    )


def without_end(partition: int, seconds: int) -> HealthText:
    """The health reason of a metadata partition whose end no broker returns."""
    name = f"{REMOTE_LOG_METADATA_TOPIC}-{partition}"
    return HealthReason.METADATA_END.text(name=name, seconds=seconds)


class TopicUnavailableError(TidemarkError):
    """The topic does not exist yet, or no broker answers for it now."""


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
    """The position is beyond the log's end, or its leader epoch is not the log's there.

    The records that were read from this partition are not those of the topic; it must be read
    again.
    """

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Reading cannot continue: a batch is damaged.

    Repeated as long as that lasts; any other event of the partition means that it has ended.

    Attributes:
        reason: With partition, offset and remedy.
    """

    partition: int
    reason: HealthText


TopicEvent = TopicRecord | ReachedEnd | Diverged | Unreadable


@dataclass(frozen=True, slots=True)
class Appended:
    """The append is durable at `offset`; -1 if the broker did not return the offset."""

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
        failure: Why it can never append again, None while it can.
    """

    failure: str | None

    def refused(self) -> HealthText:
        """Brokers that refused these clients recently, with the reason; `HEALTHY` if none did.

        Called from any thread; never waits.
        """
        ...

    def connect(self) -> int:
        """Look the topic up; returns its number of partitions.

        Raises:
            TopicUnavailableError: Try again later.
        """
        ...

    def assign(self, positions: Mapping[int, Position]) -> None:
        """Read exactly these partitions from now on, each from its position.

        Positions are checked now, and at each new leader epoch of a partition. If the log does not
        confirm one, this is reported as `Diverged`, and reading that partition stops. `ReachedEnd`
        is reported at the end of a partition, at least once after each call of this.
        """
        ...

    def append(self, partition: int, value: bytes, on_done: Callable[[AppendResult], None]) -> None:
        """Append a record (key null); any thread may call.

        `on_done` is called once: from `poll`, or at once if the append cannot be tried.
        """
        ...

    def ask_end(self, partition: int, on_done: Callable[[int | None], None]) -> None:
        """Request the log's present end: the first offset that cannot be read yet.

        `on_done` is called once, from `poll`; with None if no broker answered.
        """
        ...

    def poll(self, timeout_ms: int) -> list[TopicEvent]:
        """Wait for events for at most `timeout_ms`; runs callbacks of appends."""
        ...

    def close(self) -> None:
        """Close connections; pending appends get no result."""
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
    """The metadata partition that holds all records of a user partition.

    Kafka's rule: murmur2 of the 4 bytes of Java's
    `Objects.hash(id's low half, high half, partition)`.
    """
    low = int.from_bytes(partition.topic_id[8:], "big")
    high = int.from_bytes(partition.topic_id[:8], "big")
    h = 31 * (31 * (31 + _fold(low)) + _fold(high)) + partition.partition
    key = (h & 0xFFFFFFFF).to_bytes(4, "big")
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def _fold(half: int) -> int:
    return (half ^ half >> 32) & 0xFFFFFFFF
