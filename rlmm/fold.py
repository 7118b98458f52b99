"""Applies the state tables to records on top of a store, and collects the changes.

One fold handles consecutive records of one metadata partition. It validates record after record,
sees its own earlier effects, and leaves the write to its caller. So the changes are written at
once, together with the position.
"""

from rlmm.api import SegmentUpdate
from rlmm.events import MetadataEvent, PartitionDeleted, SegmentAdded
from rlmm.lifecycle import PartitionFacts, SegmentEntry, Verdict, apply
from rlmm.store import Changes, MetadataStore, PartitionKey, SegmentChange, partition_key


class Fold:
    """Validates consecutive records of one metadata partition."""

    def __init__(self, store: MetadataStore, metadata_partition: int) -> None:
        self._store = store
        self._metadata_partition = metadata_partition
        self.changes = Changes()

    def take(self, event: MetadataEvent, *, order: int, seen_ms: int) -> Verdict:
        """Validate the next record and collect its effect.

        Args:
            event: Its contents.
            order: Its offset in the metadata partition.
            seen_ms: Wall clock now.
        """
        partition = event.topic_id_partition
        key = partition_key(partition)
        known = self._facts(key)
        facts = known or PartitionFacts(partition)
        segment_id = _segment_id(event)
        entry = None if segment_id is None else self._entry(key, segment_id)
        applied = apply(facts, entry, event, order=order, seen_ms=seen_ms)
        if known is None or (applied.facts is not facts and applied.facts != facts):
            self.changes.facts[key] = applied.facts
        if segment_id is not None and applied.entry is not entry:
            earlier = self.changes.segments.get((key, segment_id))
            self.changes.segments[key, segment_id] = SegmentChange(
                earlier.before if earlier else entry, applied.entry
            )
        return applied.verdict

    def _facts(self, key: PartitionKey) -> PartitionFacts | None:
        return self.changes.facts.get(key) or self._store.facts(self._metadata_partition, key)

    def _entry(self, key: PartitionKey, id: bytes) -> SegmentEntry | None:
        change = self.changes.segments.get((key, id))
        if change is not None:
            return change.after
        return self._store.entry(self._metadata_partition, key, id)


def _segment_id(event: MetadataEvent) -> bytes | None:
    match event:
        case SegmentAdded(metadata=metadata):
            return metadata.id.id
        case PartitionDeleted():
            return None
        case _:
            update: SegmentUpdate = event.update
            return update.id.id
