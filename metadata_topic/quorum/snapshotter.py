"""When a snapshot of the metadata is due, how it is made without holding the event loop, what goes.

The image is immutable, so records are made from it in slices between other work of the loop while
the cluster moves on; the file is written on the pool. A snapshot lets old ones go, and with them
the log they were the base of.

Source: KIP-630; triggers and clean-up as in Kafka's SnapshotGenerator and KafkaMetadataLog.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kafka_protocol.errors import KafkaError
from kafka_protocol.steps import Pace, Steps
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import RECORD_WORK, UnknownMetadataRecordError
from metadata_topic.image.snapshot_records import snapshot_records
from metadata_topic.quorum.batches import read_records, whole_batches
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.metadata_log import MetadataLog
from metadata_topic.quorum.recovery import FoundMetadata
from metadata_topic.quorum.snapshot_rules import (
    KeptSnapshot,
    SnapshotFacts,
    is_snapshot_due,
    snapshots_to_delete,
)
from metadata_topic.quorum.snapshots import SnapshotFiles, snapshot_chunks
from metadata_topic.raft.snapshot_id import SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts
from runtime.ports import Ports
from runtime.turns import run_in_steps

log = logging.getLogger(__name__)


def _read_back(chunk: bytearray) -> Steps[None]:
    pace = Pace()
    for position, header in whole_batches(chunk):
        if header.is_control:
            continue
        for _ in read_records(chunk, position):
            if pace.is_step_over(RECORD_WORK):
                yield


class Snapshotter:
    """Makes snapshots of one metadata log; use it from the event loop's thread only."""

    def __init__(
        self,
        *,
        files: SnapshotFiles,
        log: MetadataLog,
        found: FoundMetadata,
        facts_at: Callable[[int], QuorumFacts],
        note_flushed: Callable[[], Awaitable[None]],
        config: MetadataLogConfig,
        ports: Ports,
    ) -> None:
        """Take the parts.

        Args:
            files: where snapshots go.
            log: what they are made of.
            found: what the start began with: the last snapshot, and what was replayed after it.
            facts_at: voters and kraft.version below an offset (exclusive).
            note_flushed: notes the log's flushed end on disk; asked before each snapshot, so that
                no snapshot of ours ends above it.
            config: triggers and retention.
            ports: its clock dates batches, its pool `log-background` writes the files.
        """
        self._files = files
        self._metadata_log = log
        self._facts_at = facts_at
        self._note_flushed = note_flushed
        self._config = config
        self._clock = ports.clock
        self._pool = ports.executors.background
        self.last_id = found.snapshot_id
        self._bytes = found.bytes_after_snapshot
        self._records = found.loader.record_count
        self._since_ms = self._clock.monotonic_ms()
        self._running = asyncio.Lock()

    def note_appended(self, size_bytes: int) -> None:
        """Count a committed batch."""
        self._bytes += size_bytes

    def is_due(self, image: MetadataImage) -> bool:
        """Whether a snapshot of `image` should be made now; never while one is being made."""
        if self._running.locked():
            return False
        end = 0 if self.last_id is None else self.last_id.end_offset
        facts = SnapshotFacts(
            self._bytes,
            self._records,
            self._clock.monotonic_ms() - self._since_ms,
            image.provenance.end_offset > end,
        )
        return is_snapshot_due(facts, self._config)

    async def make(self, image: MetadataImage) -> SnapshotId | None:
        """Write a snapshot of a committed image and let go of what it replaces.

        A failing disk is logged, not fatal: the log has everything, and the next trigger tries
        again. So is a snapshot that could not be read back: it gets no name.

        Returns:
            The new snapshot; None if it could not be written.
        """
        async with self._running:
            return await self._make(image)

    async def _make(self, image: MetadataImage) -> SnapshotId | None:
        snapshot_id = SnapshotId(image.provenance.end_offset, image.provenance.epoch)
        if snapshot_id == self.last_id:
            return snapshot_id
        bytes_before, self._bytes, self._records = self._bytes, 0, 0
        self._since_ms = self._clock.monotonic_ms()
        try:
            size_bytes = await self._write(image, snapshot_id)
        except OSError:
            self._bytes += bytes_before
            log.exception("cannot write a snapshot: file=%s", snapshot_id.file_name)
            return None
        except (KafkaError, UnknownMetadataRecordError):
            log.exception("a snapshot would be unreadable: file=%s", snapshot_id.file_name)
            return None
        self.last_id = snapshot_id
        log.info("wrote snapshot: file=%s size_bytes=%d", snapshot_id.file_name, size_bytes)
        try:
            self.clean()
        except (OSError, KafkaError):
            log.exception(
                "cannot delete what the snapshot replaces: file=%s", snapshot_id.file_name
            )
        return snapshot_id

    async def _write(self, image: MetadataImage, snapshot_id: SnapshotId) -> int:
        await self._note_flushed()
        facts = self._facts_at(snapshot_id.end_offset)
        chunks = []
        for chunk in snapshot_chunks(
            snapshot_records(image),
            snapshot_id=snapshot_id,
            last_contained_timestamp_ms=image.provenance.timestamp_ms,
            now_ms=self._clock.wall_ms,
            kraft_version=facts.kraft_version,
            voters=facts.voters,
            cluster_id=self._files.cluster_id,
        ):
            # A snapshot that no start could read must not replace one that it can.
            await run_in_steps(_read_back(chunk))
            if chunk:
                chunks.append(chunk)
            await asyncio.sleep(0)  # a piece is a few milliseconds; others come first now
        return await self._pool.run(self._files.write, snapshot_id, chunks)

    def clean(self) -> None:
        """Delete snapshots that retention does not keep, and the log before the oldest kept one."""
        now_ms = self._clock.wall_ms()
        kept = [
            KeptSnapshot(
                snapshot_id,
                self._files.size_bytes(snapshot_id),
                now_ms - self._files.modified_ms(snapshot_id),
            )
            for snapshot_id in self._files.ids()
        ]
        count = snapshots_to_delete(kept, self._metadata_log.size_bytes, self._config)
        if count == 0:
            return
        # The log first: a snapshot without its log is harmless, a log without its snapshot is lost.
        self._metadata_log.delete_before(kept[count].id.end_offset)
        for snapshot in kept[:count]:
            self._files.delete(snapshot.id)
            log.info("deleted snapshot: file=%s", snapshot.id.file_name)
