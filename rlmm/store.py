"""The memory of a metadata manager, as a port, with an implementation in memory.

A store holds, per metadata partition, the consumed position and the state that follows from it.
State and position change together or not at all. After a crash the store has some earlier state,
and reading continues there. It is a cache of the topic; losing all of it costs a replay.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import TopicIdPartition
from rlmm.lifecycle import PartitionFacts, SegmentEntry
from rsm_plugins.segment import RemoteLogSegmentId
from runtime.override import override


class Position(NamedTuple):
    """Consumed position of a metadata partition.

    Attributes:
        offset: The next to read.
        leader_epoch: Of the last batch that was read, -1 if none. A log that does not confirm it up
            to `offset` is not the log that was read.
    """

    offset: int
    leader_epoch: int


START = Position(0, -1)

PartitionKey = tuple[bytes, int]
"""Topic id and partition; the topic's name is not part of a partition's identity."""


def partition_key(partition: TopicIdPartition) -> PartitionKey:
    """The identity of a user partition."""
    return partition.topic_id, partition.partition


class SegmentChange(NamedTuple):
    """A segment before and after some records; None: not live."""

    before: SegmentEntry | None
    after: SegmentEntry | None


@dataclass(slots=True)
class Changes:
    """Changes from consecutive records of one metadata partition."""

    facts: dict[PartitionKey, PartitionFacts] = field(default_factory=dict)
    segments: dict[tuple[PartitionKey, bytes], SegmentChange] = field(default_factory=dict)


class MetadataStore(Protocol):
    """Keeps the state; used by one thread that writes and many that read.

    Reading raises DamagedStoreError where the stored state proves nothing any more.

    Attributes:
        failure: The damage that was found, None if there was none. A damaged store is not used
            any more.
    """

    failure: str | None

    def position(self, metadata_partition: int) -> Position:
        """Consumed position of a metadata partition; `START` if never consumed."""
        ...

    def facts(self, metadata_partition: int, partition: PartitionKey) -> PartitionFacts | None:
        """Facts of a user partition, None if no record names it."""
        ...

    def all_facts(self, metadata_partition: int) -> list[PartitionFacts]:
        """Facts of all user partitions that records name, deleted ones included."""
        ...

    def entry(
        self, metadata_partition: int, partition: PartitionKey, id: bytes
    ) -> SegmentEntry | None:
        """The entry of a live segment, None for any other id."""
        ...

    def entries(self, metadata_partition: int, partition: PartitionKey) -> Iterator[SegmentEntry]:
        """All live segments of a user partition, ascending by start offset."""
        ...

    def newest_entry(self, metadata_partition: int, partition: PartitionKey) -> SegmentEntry | None:
        """The live segment with the highest end offset, of several the highest id."""
        ...

    def write(self, metadata_partition: int, changes: Changes, position: Position) -> None:
        """Write changes and position, both or neither."""
        ...

    def drop(self, metadata_partition: int) -> None:
        """Drop all of a metadata partition; its position is `START` again."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class DamagedStoreError(TidemarkError):
    """The stored state cannot be read, or contradicts itself: it proves nothing any more."""


class MemoryStore(MetadataStore):
    """A store that ends with the process: for tests, and for the in-memory manager.

    Attributes:
        failure: None, since memory is not damaged.
    """

    failure: str | None = None

    def __init__(self) -> None:
        self._positions: dict[int, Position] = {}
        self._facts: dict[int, dict[PartitionKey, PartitionFacts]] = {}
        self._entries: dict[int, dict[PartitionKey, dict[bytes, SegmentEntry]]] = {}

    @override
    def position(self, metadata_partition: int) -> Position:
        return self._positions.get(metadata_partition, START)

    @override
    def facts(self, metadata_partition: int, partition: PartitionKey) -> PartitionFacts | None:
        return self._facts.get(metadata_partition, {}).get(partition)

    @override
    def all_facts(self, metadata_partition: int) -> list[PartitionFacts]:
        return list(self._facts.get(metadata_partition, {}).values())

    @override
    def entry(
        self, metadata_partition: int, partition: PartitionKey, id: bytes
    ) -> SegmentEntry | None:
        return self._entries.get(metadata_partition, {}).get(partition, {}).get(id)

    @override
    def entries(self, metadata_partition: int, partition: PartitionKey) -> Iterator[SegmentEntry]:
        found = self._entries.get(metadata_partition, {}).get(partition, {})
        return iter(
            sorted(found.values(), key=lambda e: (e.metadata.start_offset, e.metadata.id.id))
        )

    @override
    def newest_entry(self, metadata_partition: int, partition: PartitionKey) -> SegmentEntry | None:
        live = self.entries(metadata_partition, partition)
        return max(live, key=lambda e: (e.metadata.end_offset, e.metadata.id.id), default=None)

    @override
    def write(self, metadata_partition: int, changes: Changes, position: Position) -> None:
        self._facts.setdefault(metadata_partition, {}).update(changes.facts)
        partitions = self._entries.setdefault(metadata_partition, {})
        for (partition, segment_id), change in changes.segments.items():
            if change.after is None:
                partitions.setdefault(partition, {}).pop(segment_id, None)
            else:
                partitions.setdefault(partition, {})[segment_id] = change.after
        self._positions[metadata_partition] = position

    @override
    def drop(self, metadata_partition: int) -> None:
        self._positions.pop(metadata_partition, None)
        self._facts.pop(metadata_partition, None)
        self._entries.pop(metadata_partition, None)

    @override
    def close(self) -> None:
        pass


def entry_of(
    store: MetadataStore, metadata_partition: int, id: RemoteLogSegmentId
) -> SegmentEntry | None:
    """The entry of a live segment by its full id."""
    return store.entry(metadata_partition, partition_key(id.topic_id_partition), id.id)
