"""Views of recently used partitions, built from the store, in bounded memory.

A cached view is updated change by change. Any other view costs nothing, and a scan of the store
when it is requested. The cache also has the remover's state of all partitions.
"""

from collections import OrderedDict

from rlmm.api import PartitionDeleteState
from rlmm.lifecycle import deletion_of
from rlmm.partition_view import PartitionView
from rlmm.store import Changes, MetadataStore, PartitionKey
from rlmm.topic_based.deletions import DeletionCache

SEGMENTS_MAX = 20_000
"""About a kilobyte each; a view counts as one more, since there are many of deleted topics."""


class ViewCache:
    """Views of user partitions; not thread-safe.

    Attributes:
        deletions: Of the metadata partitions that this broker leads.
    """

    def __init__(self, store: MetadataStore, segments_max: int = SEGMENTS_MAX) -> None:
        self._store = store
        self._segments_max = segments_max
        self._views: OrderedDict[tuple[int, PartitionKey], PartitionView] = OrderedDict()
        self._segments = 0
        self.deletions = DeletionCache(store)

    def get(self, metadata_partition: int, partition: PartitionKey) -> PartitionView:
        """The view of a user partition as the store has it now."""
        key = metadata_partition, partition
        view = self._views.get(key)
        if view is not None:
            self._views.move_to_end(key)
            return view
        view = PartitionView(self._store.entries(metadata_partition, partition))
        self._views[key] = view
        self._segments += 1 + len(view)
        while self._segments > self._segments_max and len(self._views) > 1:
            _, oldest = self._views.popitem(last=False)
            self._segments -= 1 + len(oldest)
        return view

    def apply(self, metadata_partition: int, changes: Changes) -> None:
        """Apply changes that were just written to the store."""
        self.deletions.apply(metadata_partition, changes)
        for (partition, segment_id), change in changes.segments.items():
            view = self._views.get((metadata_partition, partition))
            if view is not None:
                before = len(view)
                view.put(segment_id, change.after)
                self._segments += len(view) - before
        for partition, facts in changes.facts.items():
            if deletion_of(facts).state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                self._drop_view((metadata_partition, partition))

    def _drop_view(self, key: tuple[int, PartitionKey]) -> None:
        view = self._views.pop(key, None)
        if view is not None:
            self._segments -= 1 + len(view)

    def drop(self, metadata_partition: int) -> None:
        """Drop all views of a metadata partition."""
        self.deletions.drop(metadata_partition)
        for key in [key for key in self._views if key[0] == metadata_partition]:
            self._drop_view(key)
