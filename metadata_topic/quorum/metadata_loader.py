"""From committed records to published images, on any node.

Nothing above the high watermark is read. A run of available batches makes one image. Long work runs
in steps, with other work of the loop in between, and batches that are not in memory are read on a
pool. An image ends at the end of a batch, outside of any transaction (`image.loader`).

A snapshot that was found at the start, or fetched, replaces all records before its end. The images
restart with it, and subscribers get one delta against the last image.

A record that cannot be read or replayed ends the node. Without it clients would see a cluster that
does not exist.

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
"""Limit of batches read at once; a single batch of any size is read."""
_UNREADABLE = (
    CorruptBatchError,
    UnknownMetadataRecordError,
    BrokenMetadataLogError,
    InvalidRecordError,
    MalformedMessageError,
)
Subscriber = Callable[[MetadataImage, MetadataDelta], object]


class UnreadableCommitError(TidemarkError):
    """A committed record cannot be read or replayed; the message has its name and offset."""


class Applied(NamedTuple):
    """Progress of the loader.

    Attributes:
        image: Ends at `end_offset`, or earlier while a metadata transaction is open.
        end_offset: First offset (exclusive end) that was not read.
        size_bytes: Of the batches since the last call.
        in_transaction: A metadata transaction is open at `end_offset`.
    """

    image: MetadataImage
    end_offset: int
    size_bytes: int
    in_transaction: bool


class CommittedBatch(NamedTuple):
    """Identity of a committed batch: no other batch of any log has all three values.

    Attributes:
        crc: Its own CRC-32C, over timestamps and records.
    """

    base_offset: int
    epoch: int
    crc: int


class MetadataLoader:
    """Reads committed records and publishes images; used from the loop's thread only.

    Attributes:
        image: The newest one published.
        end_offset: First offset (exclusive end) that was not read.
        last_batch: The last one read; None before the first.
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
        """Take the result of a start; nothing is read before `on_high_watermark`.

        Args:
            stored: Log and snapshots.
            loader: Has the records replayed at the start.
            end_offset: End (exclusive) of these records.
            ports: Scheduler, and the pool for reads from disk.
            on_applied: Called after the subscribers, also if no record changed anything.
            on_failure: Called once; nothing is applied after that.
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
        """Call `subscriber(image, delta)` for each image with changes."""
        self._subscribers.append(subscriber)

    def on_high_watermark(self, offset: int) -> None:
        """Take the high watermark (exclusive); a lower one than before is ignored."""
        self._committed = max(self._committed, offset)
        self._continue()

    def on_snapshot_installed(self, snapshot_id: SnapshotId) -> None:
        """Replace all that was applied by a snapshot on the disk; the log continues at its end."""
        self._fetched = snapshot_id
        self._committed = max(self._committed, snapshot_id.end_offset)
        self._continue()

    def _continue(self) -> None:
        if self._committed > self.end_offset:
            self._runner.start()

    def drop_removed(self, topic_ids: Iterable[bytes]) -> None:
        """Take ids off this node's list of removed tiered topics, in its next image.

        Limits the list under a controller that keeps none. A start that reads the removals again
        lists them again.
        """
        self._loader.drop_removed(topic_ids)

    def close(self) -> None:
        """Apply no more records."""
        self._runner.cancel()

    def _fail(self, error: Exception) -> None:
        is_unreadable = isinstance(error, UnreadableCommitError)
        (self.metrics.errors if is_unreadable else self.metrics.apply_errors).inc()
        self.close()
        self._on_failure(error)

    def _catch_up(self) -> Work[None]:
        while self.end_offset < self._committed:
            yield Until(self._log.gate.when_open)  # a cut or restart of the log may be in progress
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
        """Restart the images with a fetched snapshot, which was checked before it got its name."""
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
