"""A remover with a metadata log, a metadata manager and a store, on one manual clock."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlmm.api import Fence, PartitionDeleteState
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rlmm.testing import PARTITION, segment, update
from rlmm.topic_based.removal_policy import ClusterImage
from rlmm.topic_based.removal_ports import OPEN_GATE, RemoverConfig, StoreGate
from rlmm.topic_based.remover import Remover
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import SegmentState
from rsm_plugins.testing import LOG_BYTES, FaultyStorage, segment_data
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng

FENCE = Fence(3, 1)
GRACE_MS, COPY_MAX_MS = 60_000, 3_600_000
S0, S1 = segment(1, 0, 9), segment(2, 10, 19)


@dataclass
class MetadataLog:
    """The cluster metadata as far as the remover sees them; its list is kept as the real one is."""

    topic_ids: set[bytes] = field(default_factory=lambda: {PARTITION.topic_id})
    removed: set[bytes] = field(default_factory=set)
    cluster_id: str = "c"
    removals_are_listed: bool = True

    def image(self) -> ClusterImage | None:
        return ClusterImage(
            frozenset(self.topic_ids),
            frozenset(self.removed),
            self.cluster_id,
            self.removals_are_listed,
        )

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        self.removed -= set(topic_ids)

    def copy(self) -> "MetadataLog":
        return replace(self, topic_ids=set(self.topic_ids), removed=set(self.removed))


@dataclass
class Setup:
    root: Path
    clock: ManualClock = field(default_factory=ManualClock)
    log: MetadataLog = field(default_factory=MetadataLog)

    def __post_init__(self) -> None:
        self.manager = InMemoryRemoteLogMetadataManager(self.clock, SeededRng(1))
        inner = LocalFsRemoteStorageManager()
        inner.configure({"dir": str(self.root)})
        self.storage = FaultyStorage(inner)
        self.remover = self.new_remover()
        self.manager.own(PARTITION, FENCE, 50)

    def new_remover(self, gate: StoreGate = OPEN_GATE) -> Remover:
        config = RemoverConfig(
            cluster_id="c",
            node_id=1,
            grace_ms=GRACE_MS,
            copy_max_ms=COPY_MAX_MS,
            write_wait_ms=1,
        )
        return Remover(self.manager, self.storage, self.log, config, self.clock, gate)

    def copy(self, of: object = S0) -> None:
        sized = replace(of, segment_size_bytes=len(LOG_BYTES))  # type: ignore[type-var]
        self.manager.add(sized, FENCE, 50)
        self.storage.copy_log_segment_data(sized, segment_data())
        done = update(sized, SegmentState.COPY_SEGMENT_FINISHED)
        assert self.manager.update(done, FENCE, 50).exception(0) is None

    def delete_topic(self) -> None:
        self.log.topic_ids.discard(PARTITION.topic_id)
        self.log.removed.add(PARTITION.topic_id)

    def restore(self, log: MetadataLog) -> None:
        """Another broker process begins on an earlier copy of the metadata log."""
        self.log = log
        self.remover = self.new_remover()

    def state(self) -> PartitionDeleteState | None:
        known = self.manager.deletion(PARTITION)
        assert known is not None
        return known.state

    def objects(self) -> list[Path]:
        return [path for path in self.root.rglob("*") if path.is_file()]

    def run_pass(self, on_given_up: Callable[[], None] = lambda: None) -> None:
        """A look, and a turn of each partition that it finds."""
        for partition in self.remover.look():
            self.remover.remove(partition, on_given_up)

    def run_until_gone(self) -> None:
        self.run_pass()
        self.clock.advance(GRACE_MS)
        self.run_pass()
        self.clock.advance(COPY_MAX_MS + 1)
        self.run_pass()
