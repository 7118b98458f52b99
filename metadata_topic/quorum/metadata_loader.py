"""From committed records to published images, on any node.

Nothing above the high watermark is read. A run of batches that is there makes one image; large ones
are taken in steps, with other work of the loop in between, and what is not in memory is read on a
pool. An image ends at the end of a batch, outside of any transaction (`image.loader`).

A snapshot that a start found, or that was fetched, stands for everything before its end: the images
begin again with it, and subscribers get one delta against what they had.

A record that cannot be read or replayed ends the node: continuing without it would show a cluster
that does not exist.

Source: KIP-630, Loading Snapshots.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kafka_protocol.errors import InvalidRecordError, MalformedMessageError, TidemarkError
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.difference import difference
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import BrokenMetadataLogError, Provenance
from metadata_topic.image.records import RECORD_WORK, UnknownMetadataRecordError
from metadata_topic.quorum.loader_metrics import LoaderMetrics
from metadata_topic.quorum.log.batches import CorruptBatchError, read_records, whole_batches
from metadata_topic.quorum.snapshot.snapshots import Snapshot
from metadata_topic.quorum.snapshot.store import StoredMetadata, replay_snapshot
from metadata_topic.raft.messages import SnapshotId
from runtime.ports import Ports
from runtime.work import OnPool, Pace, Runner, Steps, Until, Work

READ_BYTES_MAX: Final = 1 << 20
"""Of batches that are read at once; one batch is read however large it is."""
_UNREADABLE = (
    CorruptBatchError,
    UnknownMetadataRecordError,
    BrokenMetadataLogError,
    InvalidRecordError,
    MalformedMessageError,
)
Subscriber = Callable[[MetadataImage, MetadataDelta], object]


class UnreadableCommitError(TidemarkError):
    """A committed record cannot be read or replayed; the message names it and its offset."""


class Applied(NamedTuple):
    """How far the loader has come.

    Attributes:
        image: ends at `end_offset`, or before it while a metadata transaction is open.
        end_offset: first offset (exclusive end) that was not looked at.
        size_bytes: of the batches since the last call.
        in_transaction: a metadata transaction is open at `end_offset`.
    """

    image: MetadataImage
    end_offset: int
    size_bytes: int
    in_transaction: bool


class CommittedBatch(NamedTuple):
    """Which batch a committed one is: no other of any log has all three.

    Attributes:
        crc: its own CRC-32C, over timestamps and records.
    """

    base_offset: int
    epoch: int
    crc: int


class MetadataLoader:
    """See the module; use it from the loop's thread only.

    Attributes:
        image: the newest that was published.
        end_offset: first offset (exclusive end) that was not looked at.
        last_batch: the last one that was read; None before the first.
    """

    def __init__(
        self,
        stored: StoredMetadata,
        loader: ImageLoader,
        end_offset: int,
        ports: Ports,
        *,
        on_applied: Callable[[Applied], object],
        on_failure: Callable[[Exception], object],
    ) -> None:
        """Take what a start has found; nothing is read before `on_high_watermark`.

        Args:
            stored: where the records are.
            loader: holds what was replayed at the start.
            end_offset: up to where (exclusive) that was.
            ports: scheduler, and the pool for what is not in memory.
            on_applied: called after the subscribers, also where no record changed anything.
            on_failure: told once; nothing is applied after that.
        """
        self._stored, self._log, self._loader = stored, stored.log, loader
        self._clock = ports.clock
        self._reads = ports.executors.reads
        self._log_reads = stored.log.gate.pool(self._reads, ports.scheduler)
        self._on_applied, self._on_failure = on_applied, on_failure
        self._subscribers: list[Subscriber] = []
        self._committed = self.end_offset = end_offset
        self._fetched: SnapshotId | None = None
        self.last_batch: CommittedBatch | None = None
        self.image, _ = loader.take()
        self.metrics = LoaderMetrics(ports.metrics, ports.clock, lambda: self.image)
        self._runner = Runner(
            self._catch_up,
            ports.scheduler,
            failed=self._fail,
            around=self.metrics.busy_ms.taken,
        )

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(image, delta)` for each image that differs from the one before."""
        self._subscribers.append(subscriber)

    def on_high_watermark(self, offset: int) -> None:
        """Everything below `offset` (exclusive) is committed; a lower one than before is late."""
        self._committed = max(self._committed, offset)
        self._continue()

    def on_snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        """A snapshot on the disk stands for all that was applied.

        The log continues from its end.
        """
        self._fetched = snapshot_id
        self._committed = max(self._committed, snapshot_id.end_offset)
        self._continue()

    def _continue(self) -> None:
        if self._committed > self.end_offset:
            self._runner.start()

    def drop_removed(self, topic_ids: Iterable[bytes]) -> None:
        """Have ids leave this node's list of removed tiered topics; in the next image.

        For controllers that keep no list, so that this one does not grow for ever. A start that
        reads the removals once more has them on it again.
        """
        self._loader.drop_removed(topic_ids)

    def close(self) -> None:
        """Apply nothing more."""
        self._runner.cancel()

    def _fail(self, error: Exception) -> None:
        is_unreadable = isinstance(error, UnreadableCommitError)
        (self.metrics.errors if is_unreadable else self.metrics.apply_errors).inc()
        self.close()
        self._on_failure(error)

    def _catch_up(self) -> Work[None]:
        while self.end_offset < self._committed:
            yield Until(self._log.gate.when_open)  # it may be cut, or begin again
            if self._fetched is not None:
                fetched, self._fetched = self._fetched, None
                if fetched.end_offset > self.end_offset:
                    yield from self._replace(fetched)
                continue
            end = self._committed
            data = self._log.read_resident(self.end_offset, READ_BYTES_MAX, end)
            if data is None:
                data = yield OnPool(
                    self._log_reads, self._log.read, self.end_offset, READ_BYTES_MAX, end_offset=end
                )
            if not data:
                return  # the high watermark lies within a batch
            yield from self._apply(data)
            self._publish(len(data))
            yield None

    def _apply(self, data: bytes) -> Steps[None]:
        pace = Pace()
        offset = self.end_offset
        try:
            for position, header in whole_batches(data):
                offset = header.base_offset
                if not header.is_control:
                    for record in read_records(data, position):
                        self._loader.add(record)
                        offset += 1
                        if pace.is_step_over(RECORD_WORK):
                            yield
                epoch, stamp = header.partition_leader_epoch, header.max_timestamp
                place = Provenance(header.last_offset, epoch, stamp)
                yield from self._loader.end_of_batch_steps(place)
                self.end_offset = header.next_offset
                self.last_batch = CommittedBatch(header.base_offset, epoch, header.crc)
        except _UNREADABLE as error:
            raise UnreadableCommitError(
                f"a committed record of the metadata log cannot be read or replayed, at offset "
                f"{offset} or in its batch: {error}. Start the version that wrote it"
            ) from error

    def _replace(self, snapshot_id: SnapshotId) -> Work[None]:
        """Begin again with a fetched snapshot; all of it was checked before it got its name."""
        began_ms = self._clock.monotonic_ms()
        loader = ImageLoader(EMPTY_IMAGE)
        try:
            snapshot: Snapshot = yield OnPool(self._reads, self._stored.files.read, snapshot_id)
            yield from replay_snapshot.steps(loader, snapshot_id, snapshot)
        except FileNotFoundError:
            if self._fetched is None:
                raise
            return  # a newer one was fetched meanwhile
        except _UNREADABLE as error:
            raise UnreadableCommitError(
                f"{snapshot_id.file_name}: a record cannot be read or replayed: {error}. Start the "
                "version that wrote it"
            ) from error
        image, _ = loader.take()
        delta = yield from difference.steps(self.image, image)
        self._loader, self.image, self.end_offset = loader, image, snapshot_id.end_offset
        self.metrics.loaded(len(snapshot.data), self._clock.monotonic_ms() - began_ms)
        self._notify(delta, 0)

    def _publish(self, size_bytes: int) -> None:
        self.image, delta = self._loader.take()
        self._notify(delta, size_bytes)

    def _notify(self, delta: MetadataDelta, size_bytes: int) -> None:
        if not delta.is_empty:
            for subscriber in self._subscribers:
                subscriber(self.image, delta)
        self._on_applied(
            Applied(self.image, self.end_offset, size_bytes, self._loader.in_transaction)
        )
