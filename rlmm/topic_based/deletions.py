"""Progress of the deletion of each user partition, by metadata partition, held in memory.

The remover visits all user partitions in each pass. So they are decoded from the store once, at its
first visit, and then updated change by change: about 400 bytes each. For complete deletions only
eight bytes of the topic's id are kept: nothing is left to do for them, and their number grows each
day.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from rlmm.api import PartitionDeleteState, PartitionDeletion
from rlmm.lifecycle import deletion_of
from rlmm.store import Changes, MetadataStore, PartitionKey, partition_key

Deletions = tuple[PartitionDeletion, ...]

_FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED


class PackedIds:
    """Topic ids by their first eight bytes, which are random: a hit must be verified."""

    __slots__ = ("_sorted",)

    def __init__(self, ids: Iterable[bytes] = ()) -> None:
        self._sorted = array("Q", sorted({int.from_bytes(each[:8], "big") for each in ids}))

    def __contains__(self, id: bytes) -> bool:
        number = int.from_bytes(id[:8], "big")
        place = bisect_left(self._sorted, number)
        return place < len(self._sorted) and self._sorted[place] == number

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, id: bytes) -> None:
        """Add an id, unless it is there."""
        if id not in self:
            insort(self._sorted, int.from_bytes(id[:8], "big"))


@dataclass(slots=True)
class _Known:
    """State of one metadata partition.

    Attributes:
        open: Partitions whose deletion is not complete, or has not begun.
        given: The tuple that was returned last; None: it has changed since.
        finished: Topics with a partition whose deletion is complete.
        looked_for, hits: Topic ids that were looked up in `finished`, and found.
    """

    open: dict[PartitionKey, PartitionDeletion]
    finished: PackedIds
    given: Deletions | None = None
    looked_for: frozenset[bytes] = frozenset()
    hits: set[bytes] = field(default_factory=set)


class DeletionCache:
    """Deletions of user partitions; not thread-safe."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._known: dict[int, _Known] = {}

    def of(self, metadata_partition: int) -> Deletions:
        """Deletions of the user partitions in a metadata partition, without complete ones."""
        known = self._of(metadata_partition)
        if known.given is None:
            known.given = tuple(known.open.values())
        return known.given

    def finished_of(self, metadata_partition: int, topic_ids: frozenset[bytes]) -> Deletions:
        """User partitions of these topics whose deletion is complete; mostly none."""
        known = self._of(metadata_partition)
        fresh = topic_ids - known.looked_for
        known.hits = (known.hits & topic_ids) | {each for each in fresh if each in known.finished}
        known.looked_for = topic_ids
        if not known.hits:
            return ()
        found = map(deletion_of, self._store.all_facts(metadata_partition))
        return tuple(
            one for one in found if one.state is _FINISHED and one.partition.topic_id in known.hits
        )

    def apply(self, metadata_partition: int, changes: Changes) -> None:
        """Apply changes that were just written to the store."""
        known = self._known.get(metadata_partition)
        if known is None:
            return
        for partition, facts in changes.facts.items():
            deletion = deletion_of(facts)
            if deletion.state is _FINISHED:
                known.finished.add(partition[0])
                known.looked_for -= {partition[0]}
                known.given = None if known.open.pop(partition, None) else known.given
            elif known.open.get(partition) != deletion:
                known.open[partition] = deletion
                known.given = None

    def drop(self, metadata_partition: int) -> None:
        """Drop a metadata partition: its cache was dropped, or this broker no longer leads it."""
        self._known.pop(metadata_partition, None)

    def _of(self, metadata_partition: int) -> _Known:
        known = self._known.get(metadata_partition)
        if known is None:
            found = [deletion_of(each) for each in self._store.all_facts(metadata_partition)]
            known = self._known[metadata_partition] = _Known(
                {partition_key(one.partition): one for one in found if one.state is not _FINISHED},
                PackedIds(one.partition.topic_id for one in found if one.state is _FINISHED),
            )
        return known
