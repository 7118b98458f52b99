"""Makes snapshots of the metadata on any node, and deletes older snapshots and segments.

    snapshotter = Snapshotter(StoredMetadata(log, files), found, core, ...)
    snapshotter.note_applied(image, size_bytes)      # after each image
    snapshotter.look(image)                          # from a timer
    snapshotter.make(image, done)                    # now

It runs on the loop's thread only, without asyncio. An image is immutable and has committed records
only, so its records are made in slices between other work of the loop. Each slice is decoded again:
a snapshot that no start can read must not replace a readable one. File access runs on the pool.

A new snapshot lets old ones be deleted, and the log before them. The log start rises only to the
end of a snapshot that is kept, and never above the high watermark. On a follower it also stays at
or below the leader's log start. First the log start rises in memory, here and in the core, so that
no reader is directed to deleted records. Then segments are deleted, then old snapshots.

A failing disk is logged and counted, but not fatal: the log has all records, and a later trigger
retries.

Source: KIP-630; triggers and clean-up as in Kafka's SnapshotGenerator and KafkaMetadataLog.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kafka_protocol.errors import TidemarkError
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import RECORD_WORK
from metadata_topic.image.snapshot_records import snapshot_records
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.log.batches import read_records, whole_batches
from metadata_topic.quorum.snapshot.metrics import SnapshotMetrics
from metadata_topic.quorum.snapshot.rules import (
    KeptSnapshot,
    LogFacts,
    SnapshotFacts,
    is_snapshot_due,
    snapshots_to_let_go,
)
from metadata_topic.quorum.snapshot.snapshots import snapshot_chunks
from metadata_topic.quorum.snapshot.store import StoredMetadata
from metadata_topic.raft.events import LogStartRaised, SnapshotWritten
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts
from runtime.incidents import Incident
from runtime.ports import Ports
from runtime.work import OnPool, Pace, Runner, Steps, Until, Work

log = logging.getLogger(__name__)

RETRY_MS: Final = 60_000
"""Delay after a failure before a snapshot is due again."""
Done = Callable[[SnapshotId | None], object]


@dataclass(frozen=True, slots=True)
class FoundSnapshot:
    """State of snapshots at the start.

    Attributes:
        newest: The snapshot that it read, None without one.
        log_end: End of the log (exclusive): records after the snapshot had to be replayed.
        bytes_replayed: Size of the batches replayed before the first image was published.
    """

    newest: SnapshotFile | None = None
    log_end: int = 0
    bytes_replayed: int = 0


class SnapshotListener(Protocol):
    """The core of the replica, behind its driver."""

    def note_snapshot(self, event: SnapshotWritten) -> None:
        """Take a snapshot made by this node; its name is durable."""
        ...

    def note_log_start(self, event: LogStartRaised) -> None:
        """Take a log start that was raised in memory; files are deleted after this call."""
        ...


class Snapshotter:
    """Makes and deletes snapshots of one node; on the loop's thread.

    Attributes:
        last_id: The newest snapshot on the disk, None without one.
        problem: Why the newest attempt at the files failed, for people; empty if it succeeded.
        metrics: Of the snapshots.
    """

    def __init__(
        self,
        stored: StoredMetadata,
        found: FoundSnapshot,
        core: SnapshotListener,
        *,
        facts_at: Callable[[int], QuorumFacts],
        config: MetadataLogConfig,
        ports: Ports,
    ) -> None:
        """Take the parts; no work begins before `note_applied` or `look`.

        Args:
            stored: The log and its snapshots.
            found: State of snapshots at the start.
            core: Gets new snapshots and log starts.
            facts_at: Returns voters and kraft.version at an offset.
            config: Triggers and retention.
            ports: The clock dates batches, the pool `log-background` writes and deletes files.
        """
        self._files, self._log, self._facts_at = stored.files, stored.log, facts_at
        self._config, self._clock = config, ports.clock
        self._core, log = core, stored.log
        self._in_gate = ports.executors.background  # for callers that have entered the gate already
        self._pool = log.gate.pool(self._in_gate, ports.scheduler)
        self.last_id = None if found.newest is None else found.newest.id
        self._replay_end = found.log_end
        self._records = found.log_end - self._last_end
        self._bytes = found.bytes_replayed
        self._since_ms = ports.clock.monotonic_ms()
        self._not_before_ms = self._since_ms
        self._leads = False
        self._leader_log_start = -1
        self._asked: deque[tuple[MetadataImage, Done]] = deque()
        self._wants_cleaning = self._is_closed = False
        self.problem = ""
        self._runner = Runner(self._work_off, ports.scheduler, failed=self._break)
        self.metrics = SnapshotMetrics(
            ports.metrics,
            ports.clock,
            high_watermark=lambda: log.high_watermark,
            newest_end=lambda: self._last_end,
        )
        self.metrics.found(0 if found.newest is None else found.newest.size_bytes)

    @property
    def _last_end(self) -> int:
        return 0 if self.last_id is None else self.last_id.end_offset

    # -- events -----------------------------------------------------------------------------------

    def note_applied(self, image: MetadataImage, size_bytes: int) -> None:
        """Take a published image, for which `size_bytes` of batches were read."""
        self._bytes += size_bytes
        self.look(image)

    def look(self, image: MetadataImage) -> None:
        """Begin a snapshot of a published image if one is due."""
        if self.is_idle and not self._is_closed and self._is_due(image):
            self.make(image, lambda _: None)

    def make(self, image: MetadataImage, done: Done) -> None:
        """Make a snapshot of a published image now, after earlier requests.

        Args:
            image: An image of the loader: committed, outside of metadata transactions.
            done: Called with the newest snapshot, which includes `image`; None after a failure.
        """
        if self._is_closed:
            done(None)
            return
        self._asked.append((image, done))
        self._runner.start()

    def on_role(self, *, leads: bool) -> None:
        """Take a change of role, epoch or leader; `leads`: this node is the leader."""
        self._leads = leads
        self._leader_log_start = -1  # the log start of this leader is unknown yet

    def on_leader_log_start(self, offset: int) -> None:
        """Take the start of the leader's log: this node's log may begin there, too."""
        has_risen = offset > self._leader_log_start
        self._leader_log_start = offset
        if has_risen and offset > self._log.start_offset and self._last_end > 0:
            self._clean_soon()

    def on_installed(self, snapshot_id: SnapshotId) -> None:
        """Take a fetched snapshot that replaces everything applied so far."""
        self.last_id = snapshot_id
        self._begin_counting()
        self._clean_soon()

    # -- the end --------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if no snapshot is being made or deleted."""
        return not self._runner.is_running

    def when_idle(self, fn: Callable[[], None]) -> None:
        """Call `fn` once no snapshot is being made or deleted; perhaps at once."""
        self._runner.when_idle(fn)

    def close(self) -> None:
        """Begin no more work; work in progress ends soon, see `when_idle`."""
        self._is_closed = True

    def abandon(self) -> None:
        """Stop work in progress at once: the files are left as after a kill."""
        self._is_closed = True
        self._runner.cancel()
        self._notify_none()

    # -- one at a time ---------------------------------------------------------------------------

    def _clean_soon(self) -> None:
        self._wants_cleaning = True
        if not self._is_closed:
            self._runner.start()

    def _work_off(self) -> Work[None]:
        while (self._asked or self._wants_cleaning) and not self._is_closed:
            if not self._asked:
                yield from self._clean()
                continue
            image, done = self._asked[0]
            made = yield from self._make(image)
            if self._wants_cleaning:
                yield from self._clean()
            self._asked.popleft()
            done(made)
        self._notify_none()

    def _break(self, error: Exception) -> None:
        """Take a bug of ours: the log is unaffected, but snapshots cannot be relied on."""
        log.error(
            Incident.DEFECT.line(what="making a snapshot failed in an unknown way"), exc_info=error
        )
        self.metrics.failures.inc()
        self.problem = f"making a snapshot failed: {error!r}"
        self._wants_cleaning = False
        self._not_before_ms = self._clock.monotonic_ms() + RETRY_MS
        self._notify_none()

    def _notify_none(self) -> None:
        asked, self._asked = self._asked, deque()
        for _, done in asked:
            done(None)

    # -- making ---------------------------------------------------------------------------------

    def _is_due(self, image: MetadataImage) -> bool:
        now_ms, end = self._clock.monotonic_ms(), image.provenance.end_offset
        facts = SnapshotFacts(
            self._bytes,
            self._records if end >= self._replay_end else 0,
            now_ms - self._since_ms,
            end > self._last_end,
        )
        return now_ms >= self._not_before_ms and is_snapshot_due(facts, self._config)

    def _begin_counting(self) -> None:
        self._bytes = self._records = 0
        self._since_ms = self._clock.monotonic_ms()

    def _make(self, image: MetadataImage) -> Work[SnapshotId | None]:
        place = image.provenance
        snapshot_id = SnapshotId(place.end_offset, place.epoch)
        if snapshot_id.end_offset <= self._last_end:
            return self.last_id
        counted, started_ms = self._bytes, self._clock.monotonic_ms()
        self._begin_counting()
        try:
            size_bytes = yield from self._write(image, snapshot_id)
        except (OSError, TidemarkError) as error:
            log.exception(Incident.SNAPSHOT_FAILED.line(file=snapshot_id.file_name))
            self.metrics.failures.inc()
            self.problem = f"the snapshot {snapshot_id.file_name} cannot be made: {error}"
            self._bytes += counted
            self._not_before_ms = self._clock.monotonic_ms() + RETRY_MS
            return None
        if size_bytes is None:
            return None if self._is_closed else self.last_id
        self.last_id, self.problem = snapshot_id, ""
        self.metrics.generated(size_bytes, self._clock.monotonic_ms() - started_ms)
        log.info("wrote snapshot: file=%s size_bytes=%d", snapshot_id.file_name, size_bytes)
        self._core.note_snapshot(SnapshotWritten(SnapshotFile(snapshot_id, size_bytes)))
        self._wants_cleaning = True
        return snapshot_id

    def _write(self, image: MetadataImage, snapshot_id: SnapshotId) -> Work[int | None]:
        """Write the file; None if a newer snapshot made it needless."""
        chunks: list[bytearray] = []
        facts = self._facts_at(snapshot_id.end_offset)
        for chunk in snapshot_chunks(
            snapshot_records(image),
            snapshot_id=snapshot_id,
            last_contained_timestamp_ms=image.provenance.timestamp_ms,
            now_ms=self._clock.wall_ms,
            kraft_version=facts.kraft_version,
            voters=facts.voters,
            cluster_id=self._files.cluster_id,
        ):
            yield from _read_back(chunk)
            if chunk:
                chunks.append(chunk)
            yield None  # a piece takes a few milliseconds; then other work runs
            if self._is_needless(snapshot_id):
                return None
        yield Until(self._log.gate.when_open)
        yield OnPool(self._pool, self._flush_log)
        yield Until(self._log.gate.when_open)
        if self._is_needless(snapshot_id):
            return None
        size_bytes: int = yield OnPool(self._pool, self._files.write, snapshot_id, chunks)
        if snapshot_id.end_offset < self._log.start_offset:  # a fetched one was installed meanwhile
            self._wants_cleaning = True
            return None
        return size_bytes

    def _is_needless(self, snapshot_id: SnapshotId) -> bool:
        return self._is_closed or snapshot_id.end_offset <= self._last_end

    def _flush_log(self) -> None:
        """Flush the log below the snapshot's end, and note it: a start depends on it."""
        self._log.flush()
        self._log.note_flushed()

    # -- cleaning -------------------------------------------------------------------------------

    def _clean(self) -> Work[None]:
        """Delete snapshots beyond retention, and the log before the oldest one kept."""
        yield Until(self._log.gate.when_open)
        self._wants_cleaning = False
        self._log.gate.enter()
        try:
            yield from self._let_go()
        except (OSError, TidemarkError) as error:
            log.exception(Incident.SNAPSHOT_NOT_CLEANED.line())
            self.metrics.failures.inc()
            self.problem = f"what a snapshot replaces cannot be deleted: {error}"
        finally:
            self._log.gate.leave()

    def _let_go(self) -> Work[None]:
        kept: list[KeptSnapshot] = yield OnPool(self._in_gate, self._look_at_files)
        if not kept:
            return
        self.metrics.found(kept[-1].size_bytes)
        facts = LogFacts(self._log.size_bytes, self._log.start_offset, self._start_limit)
        count = snapshots_to_let_go(kept, facts, self._config)
        if count == 0:
            return
        start = kept[count].id.end_offset
        if start > self._log.start_offset:
            self._log.raise_start(start)
            left = tuple(SnapshotFile(one.id, one.size_bytes) for one in kept[count:])
            self._core.note_log_start(LogStartRaised(start, left))
            # The log first: without its log a snapshot is harmless, but a log without its snapshot
            # is lost.
            yield OnPool(self._in_gate, self._log.forget_epochs_before, start)
            self._log.take_out_old_segments()
            yield OnPool(self._in_gate, self._log.delete_old_segments)
        yield OnPool(self._in_gate, self._delete, [one.id for one in kept[:count]])

    @property
    def _start_limit(self) -> int:
        committed = self._log.high_watermark
        return committed if self._leads else min(committed, self._leader_log_start)

    def _look_at_files(self) -> list[KeptSnapshot]:
        now_ms = self._clock.wall_ms()
        return [
            KeptSnapshot(one, self._files.size_bytes(one), now_ms - self._files.modified_ms(one))
            for one in self._files.ids()
        ]

    def _delete(self, snapshot_ids: Sequence[SnapshotId]) -> None:
        for snapshot_id in snapshot_ids:
            self._files.delete(snapshot_id)
            log.info("deleted snapshot: file=%s", snapshot_id.file_name)


def _read_back(chunk: bytearray) -> Steps[None]:
    pace = Pace()
    for position, header in whole_batches(chunk):
        if header.is_control:
            continue
        for _ in read_records(chunk, position):
            if pace.is_step_over(RECORD_WORK):
                yield
