"""How far the deletion of each user partition is, by metadata partition, held in memory.

The remover looks at all user partitions in each pass. So they are decoded from the store once, when
it looks for the first time, and kept up to date change by change: about 400 bytes each. Deleted
ones included, as in the store.
"""

from rlmm.api import PartitionDeletion
from rlmm.lifecycle import deletion_of
from rlmm.store import Changes, MetadataStore, PartitionKey

Deletions = tuple[PartitionDeletion, ...]


class DeletionCache:
    """Gives deletions; not thread-safe."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._known: dict[int, dict[PartitionKey, PartitionDeletion]] = {}
        self._given: dict[int, Deletions] = {}

    def of(self, metadata_partition: int) -> Deletions:
        """Of every user partition that its records named, as the store has it now."""
        given = self._given.get(metadata_partition)
        if given is None:
            known = self._known.get(metadata_partition)
            if known is None:
                found = map(deletion_of, self._store.all_facts(metadata_partition))
                known = {(one.partition.topic_id, one.partition.partition): one for one in found}
                self._known[metadata_partition] = known
            given = self._given[metadata_partition] = tuple(known.values())
        return given

    def apply(self, metadata_partition: int, changes: Changes) -> None:
        """Take over what was just written to the store."""
        known = self._known.get(metadata_partition)
        if known is None:
            return
        for partition, facts in changes.facts.items():
            deletion = deletion_of(facts)
            if known.get(partition) != deletion:
                known[partition] = deletion
                self._given.pop(metadata_partition, None)

    def drop(self, metadata_partition: int) -> None:
        """Forget a metadata partition: its cache was dropped, or it is led no more."""
        self._known.pop(metadata_partition, None)
        self._given.pop(metadata_partition, None)
