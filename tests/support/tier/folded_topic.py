"""Records of a user partition in the topic's order, folded as every reader does."""

from rlmm.api import REMOVER_FENCE, Fence, PartitionDeleteState, PartitionHistory
from rlmm.barrier import barrier, newest_of
from rlmm.events import MetadataEvent, PartitionDeleted, SegmentAdded, SegmentUpdated, Stamp
from rlmm.fold import Fold
from rlmm.lifecycle import PartitionFacts, SegmentEntry, Verdict, history_of
from rlmm.store import MemoryStore, Position, partition_key
from rlmm.testing import PARTITION, update
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState

A, B = Fence(1, 1), Fence(2, 1)


class Topic:
    """Records in their order, folded as every reader does."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.end = 0

    def read(self, event: MetadataEvent) -> Verdict:
        fold = Fold(self.store, 0)
        verdict = fold.take(event, order=self.end, seen_ms=1_000 + self.end)
        self.end += 1
        self.store.write(0, fold.changes, Position(self.end, 0))
        return verdict

    def add(
        self,
        of: RemoteLogSegmentMetadata,
        fence: Fence = A,
        metadata_offset: int = -1,
        log_start: int = -1,
        unclean_epoch: int = -1,
    ) -> Verdict:
        stamp = Stamp(fence, metadata_offset, log_start, unclean_epoch)
        return self.read(SegmentAdded(of, stamp))

    def move(
        self,
        of: RemoteLogSegmentMetadata,
        state: SegmentState,
        fence: Fence = A,
        log_start: int = -1,
        unclean_epoch: int = -1,
    ) -> Verdict:
        stamp = Stamp(fence, log_start=log_start, unclean_epoch=unclean_epoch)
        return self.read(SegmentUpdated(update(of, state), stamp))

    def partition(self, state: PartitionDeleteState, fence: Fence = REMOVER_FENCE) -> Verdict:
        return self.read(PartitionDeleted(PARTITION, state, 0, 1, Stamp(fence)))

    def barrier(self, fence: Fence, unclean_epoch: int = -1) -> list[Verdict]:
        live = [e.metadata for e in self.store.entries(0, partition_key(PARTITION))]
        return [self.read(event) for event in make_barrier(live, fence, unclean_epoch)]

    @property
    def history(self) -> PartitionHistory:
        return history_of(self.facts, self.store.entries(0, partition_key(PARTITION)))

    @property
    def facts(self) -> PartitionFacts:
        facts = self.store.facts(0, partition_key(PARTITION))
        assert facts is not None
        return facts

    def entry(self, of: RemoteLogSegmentMetadata) -> SegmentEntry | None:
        return self.store.entry(0, partition_key(PARTITION), of.id.id)

    def state(self, of: RemoteLogSegmentMetadata) -> SegmentState | None:
        entry = self.entry(of)
        return None if entry is None else entry.metadata.state


def make_barrier(
    live: list[RemoteLogSegmentMetadata], fence: Fence, unclean_epoch: int = -1
) -> list[MetadataEvent]:
    return barrier(
        PARTITION,
        newest_of(live),
        fence,
        new_id=b"b" * 16,
        broker_id=2,
        now_ms=7,
        unclean_epoch=unclean_epoch,
    )
