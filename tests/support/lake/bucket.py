"""A bucket as brokers leave it: segments, metadata records, and the rows that are right.

    bucket = Bucket(tmp_path)
    orders = bucket.partition("orders")
    orders.append("a", "b").roll().copy()
    orders.append("c", codec=4).roll().copy()
    bucket.address, bucket.events, bucket.rows()

Everything in it is made by the classes that brokers use: the local log, the storage plugin, the
writer of metadata records. What is expected is made one batch and one offset at a time from the
log of the last leader.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from kafka_protocol.types import TopicIdPartition
from pipeline.store import open_store
from pipeline.values import Isolation, StoreAddress
from rlmm import records
from rlmm.events import MetadataEvent
from rlmm.fold import Fold
from rlmm.store import MemoryStore, Position, partition_key
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.lake.partition import LakePartition
from tests.support.lake.rows import Row

LOCAL_FS = "rsm_plugins.local_fs:LocalFsRemoteStorageManager"


def topic_id_of(topic: str, life: int = 0) -> bytes:
    """An id for a topic; another one for each time that it is made again."""
    return hashlib.sha256(f"{topic}/{life}".encode()).digest()[:16]


class Bucket:
    """See the module.

    Attributes:
        address: of the store.
        events: what the metadata records say, in order; `metadata_records` are their bytes.
        partitions: all of them, in the order in which they were made.
    """

    def __init__(
        self, root: Path, address: StoreAddress | None = None, *, incarnation: int = 1
    ) -> None:
        """Make an empty one.

        Args:
            root: an empty directory, for the leaders' logs.
            address: of a store; by default a directory below `root`.
            incarnation: of the tier that writes the records.
        """
        self._incarnation = incarnation
        self._root = root
        self.address = address or _directory(root / "store")
        self.store = open_store(self.address)
        self.events: list[MetadataEvent] = []
        self.partitions: list[LakePartition] = []

    def partition(
        self,
        topic: str = "orders",
        number: int = 0,
        *,
        life: int = 0,
        log_start: int = 0,
        topic_id: bytes | None = None,
    ) -> LakePartition:
        """Begin a partition.

        Args:
            topic: its topic.
            number: its number in it.
            life: a topic deleted and made again has another id each time.
            log_start: where its first leader's log begins.
            topic_id: that of a broker's topic; by default one that name and life give.
        """
        partition = TopicIdPartition(topic_id or topic_id_of(topic, life), number, topic)
        made = LakePartition(
            self._root / f"replicas-{len(self.partitions)}",
            partition,
            store=self.store,
            tell=self.events.append,
            incarnation=self._incarnation,
            log_start=log_start,
        )
        self.partitions.append(made)
        return made

    @property
    def metadata_records(self) -> list[bytes]:
        """Values of the records of `__remote_log_metadata`, in order."""
        return [records.encode(event) for event in self.events]

    def rows(
        self, isolation: Isolation = Isolation.READ_UNCOMMITTED, *, alone: bool = False
    ) -> list[Row]:
        """All rows that the store holds, partition by partition; see `LakePartition.rows`."""
        return [row for each in self.partitions for row in each.rows(isolation, alone=alone)]

    def segments(self, of: LakePartition | None = None) -> list[RemoteLogSegmentMetadata]:
        """Live segments in any state as the records say it, folded; ascending by start offset."""
        store = self.folded()
        wanted = self.partitions if of is None else [of]
        return [entry for each in wanted for entry in _entries(store, each)]

    def folded(self) -> MemoryStore:
        """The records, folded as a broker does; as of metadata partition 0."""
        store = MemoryStore()
        for order, event in enumerate(self.events):
            fold = Fold(store, 0)
            fold.take(event, order=order, seen_ms=0)
            store.write(0, fold.changes, Position(order + 1, 0))
        return store

    def close_logs(self) -> None:
        """Let go of the leaders' logs; what is expected can still be asked."""
        for each in self.partitions:
            each.close()

    def close(self) -> None:
        """Let go of the logs and the store."""
        self.close_logs()
        self.store.close()

    def __enter__(self) -> Self:
        """As a context it is closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """See `close`."""
        self.close()


def _directory(path: Path) -> StoreAddress:
    path.mkdir(parents=True)  # a reader never makes it
    return StoreAddress(LOCAL_FS, {"dir": str(path)})


def _entries(store: MemoryStore, of: LakePartition) -> Iterator[RemoteLogSegmentMetadata]:
    for entry in store.entries(0, partition_key(of.id)):
        yield entry.metadata
