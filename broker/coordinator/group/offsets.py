"""Committed offsets of one partition of `__consumer_offsets`, and those of open transactions.

There may be a million. Each is stored as 8 bytes of its record's offset and the bytes of its
record's value, and decoded on access. So it is one object of about 100 bytes; names of topics are
shared.

A commit inside a transaction is pending until the transaction's marker. It is then stored, unless a
newer record of the same partition has been stored: compaction can leave them in that order.
"""

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import NamedTuple

from broker.coordinator.group.records import CommittedOffset, read_offset_value

_PLACE = Struct(">q")
_PARTITION = int.from_bytes
_PREFIXES_MAX = 10_000
_PREFIX_BYTES_MAX = 1_000
_OFFSET_BYTES = 100
_FREED_AT_ONCE = 5_000

Stored = bytes
"""The offset of a record (8 bytes) and the value of that record."""

ByTopic = dict[str, dict[int, Stored]]


class PlacedOffset(NamedTuple):
    """A committed offset, and the offset of its record in `__consumer_offsets`."""

    record_offset: int
    committed: CommittedOffset


def unpack(stored: Stored) -> PlacedOffset:
    """Decode a stored offset."""
    return PlacedOffset(_PLACE.unpack_from(stored)[0], read_offset_value(stored[_PLACE.size :]))


def value_of(stored: Stored) -> bytes:
    """The record's value of a stored offset."""
    return stored[_PLACE.size :]


def size_of(stored: Stored) -> int:
    """Approximate memory of a stored offset."""
    return _OFFSET_BYTES + len(stored)


def growth_of(before: Stored | None, value: bytes) -> int:
    """Additional bytes of an offset; 0 if it may be stored even without memory left.

    A consumer must not be refused because its metadata are a digit longer, or because it names
    topics by id now. So a short offset may always replace another, by which the memory of all
    offsets can grow by at most half.

    Args:
        before: The offset to replace.
        value: Value of the new record.
    """
    size = _PLACE.size + len(value)
    if before is None:
        return _OFFSET_BYTES + size
    return 0 if size <= len(before) or size <= _OFFSET_BYTES else size - len(before)


class OffsetStore:
    """Offsets by group, topic and partition.

    Attributes:
        groups: The committed offsets; for reading only.
        count: Number of committed offsets.
        kept_bytes: Approximate memory, including open transactions.
        by_prefix: Partitions by the bytes of their keys without the last four, which are the
            partition. In a load, most records have the group and topic of a recent record, so their
            keys need no decoding.
    """

    def __init__(self) -> None:
        self.groups: dict[str, ByTopic] = {}
        self.count = 0
        self.kept_bytes = 0
        self.by_prefix: dict[bytes, dict[int, Stored]] = {}
        self._topics: dict[str, str] = {}
        self._pending: dict[int, dict[str, ByTopic]] = {}
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset of a partition; None: there is none."""
        stored = self.groups.get(group_id, {}).get(topic, {}).get(partition)
        return None if stored is None else unpack(stored).committed

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Stored]]:
        """All committed offsets of a group, by topic and partition; decode them by `unpack`."""
        return self.groups.get(group_id, {})

    def count_of(self, group_id: str) -> int:
        """Number of committed offsets of a group; O(topics)."""
        return sum(map(len, self.groups.get(group_id, {}).values()))

    def put(
        self, group_id: str, topic: str, partition: int, value: bytes, *, record_offset: int
    ) -> None:
        """Store a committed offset; `value` must be decodable."""
        self._put(group_id, topic, partition, _PLACE.pack(record_offset) + value)

    def remember_prefix(self, prefix: bytes, group_id: str, topic: str) -> None:
        """Cache the partitions of an existing group and topic for `put_again`.

        Long names are not cached: their memory is not counted.
        """
        if len(prefix) > _PREFIX_BYTES_MAX:
            return
        if len(self.by_prefix) >= _PREFIXES_MAX:
            self.by_prefix.clear()
        self.by_prefix[prefix] = self.groups[group_id][topic]

    def put_again(self, key: bytes, value: bytes, record_offset: int) -> bool:
        """Store an offset without decoding its key, if its group and topic are cached.

        Args:
            key: Key of the record.
            value: Value of the record, decodable.
            record_offset: Offset of the record.

        Returns:
            True if it was stored.
        """
        partitions = self.by_prefix.get(key[:-4])
        if partitions is None:
            return False
        partition = _PARTITION(key[-4:], "big", signed=True)
        self._keep(partitions, partition, _PLACE.pack(record_offset) + value)
        return True

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Remove the offset of a partition, including pending ones of open transactions."""
        by_topic = self.groups.get(group_id)
        if by_topic is not None:
            partitions = by_topic.get(topic)
            stored = None if partitions is None else partitions.pop(partition, None)
            if partitions is not None and stored is not None:
                self.count -= 1
                self.kept_bytes -= size_of(stored)
                if not partitions:
                    del by_topic[topic]
                    self.by_prefix.clear()  # it may refer to the removed partitions
                if not by_topic:
                    del self.groups[group_id]
        producers = self._open.get(group_id, {}).get((topic, partition))
        for producer_id in list(producers or ()):
            self._drop_pending(producer_id, group_id, topic, partition)

    # Open transactions.

    def put_pending(
        self,
        producer_id: int,
        place: tuple[str, str, int],
        value: bytes,
        *,
        record_offset: int,
    ) -> None:
        """Store an offset that becomes committed with the producer's transaction.

        Args:
            producer_id: Producer id of the batch.
            place: Group id, topic, partition.
            value: Value of the record.
            record_offset: Offset of the record.
        """
        group_id, topic, partition = place
        topic = self._shared(topic)
        by_topic = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
        partitions = by_topic.setdefault(topic, {})
        before, stored = partitions.get(partition), _PLACE.pack(record_offset) + value
        self.kept_bytes += size_of(stored) - (0 if before is None else size_of(before))
        partitions[partition] = stored
        opened = self._open.setdefault(group_id, {})
        opened.setdefault((topic, partition), set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Carry out a transaction's marker; without pending offsets it has no effect."""
        for group_id, by_topic in self._pending.pop(producer_id, {}).items():
            for topic, partitions in by_topic.items():
                for partition, stored in partitions.items():
                    self._close(producer_id, group_id, topic, partition)
                    self.kept_bytes -= size_of(stored)
                    if committed and self._is_newer(group_id, topic, partition, stored):
                        self._put(group_id, topic, partition, stored)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction may still change the partition's offset."""
        opened = self._open.get(group_id)
        return opened is not None and (topic, partition) in opened

    def has_open_transaction(self, group_id: str) -> bool:
        """True if an open transaction has offsets of the group."""
        return group_id in self._open

    def pending_partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Partitions of the group with offsets in open transactions."""
        return iter(tuple(self._open.get(group_id, ())))

    def pending_groups(self) -> Iterator[str]:
        """Groups with offsets in open transactions."""
        return iter(tuple(self._open))

    def pending_count(self) -> int:
        """Number of partitions with offsets in open transactions."""
        return sum(map(len, self._open.values()))

    def let_go(self) -> Iterator[None]:
        """Free all memory in slices of bounded work; the store must not be used afterwards."""
        self.by_prefix.clear()
        freed = 0
        while self.groups:
            by_topic = self.groups.popitem()[1]
            while by_topic:
                partitions = by_topic.popitem()[1]
                while partitions:
                    partitions.popitem()
                    freed += 1
                    if freed == _FREED_AT_ONCE:
                        freed = 0
                        yield
        self._pending.clear()
        self._open.clear()
        self._topics.clear()
        self.count = self.kept_bytes = 0
        yield

    def _is_newer(self, group_id: str, topic: str, partition: int, stored: Stored) -> bool:
        kept = self.groups.get(group_id, {}).get(topic, {}).get(partition)
        return kept is None or kept[: _PLACE.size] < stored[: _PLACE.size]

    def _put(self, group_id: str, topic: str, partition: int, stored: Stored) -> None:
        by_topic = self.groups.get(group_id)
        if by_topic is None:
            by_topic = self.groups[group_id] = {}
        partitions = by_topic.get(topic)
        if partitions is None:
            partitions = by_topic[self._shared(topic)] = {}
        self._keep(partitions, partition, stored)

    def _keep(self, partitions: dict[int, Stored], partition: int, stored: Stored) -> None:
        before = partitions.get(partition)
        if before is None:
            self.count += 1
            self.kept_bytes += size_of(stored)
        else:
            self.kept_bytes += len(stored) - len(before)
        partitions[partition] = stored

    def _drop_pending(self, producer_id: int, group_id: str, topic: str, partition: int) -> None:
        groups = self._pending[producer_id]
        self.kept_bytes -= size_of(groups[group_id][topic].pop(partition))
        self._close(producer_id, group_id, topic, partition)
        if not groups[group_id][topic]:
            del groups[group_id][topic]
        if not groups[group_id]:
            del groups[group_id]
        if not groups:
            del self._pending[producer_id]

    def _close(self, producer_id: int, group_id: str, topic: str, partition: int) -> None:
        opened = self._open[group_id]
        producers = opened[topic, partition]
        producers.discard(producer_id)
        if not producers:
            del opened[topic, partition]
        if not opened:
            del self._open[group_id]

    def _shared(self, topic: str) -> str:
        return self._topics.setdefault(topic, topic)
