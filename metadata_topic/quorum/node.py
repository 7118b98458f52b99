"""The metadata node: log, image and controller of one process, put together.

    node = MetadataNode(log_dir, node_id=1, ...)
    node.start()                                  # reads the disk, opens a new epoch
    node.subscribe(lambda image, delta: ...)
    created = await node.submit(lambda image: create_topics(image, ...))

Decisions are taken one after the other on the event loop: each sees the image that the one before
left, its records are on disk before anybody hears of them, and its answer comes last. Records are
replayed before they are written: what cannot be replayed must never get into the log, because every
later start would fail on it.

A disk error ends the node: what is in the log then is not known, and `on_failure` is told once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar, assert_never

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.records.control import leader_change
from metadata_topic.controller.bootstrap import activation_records
from metadata_topic.controller.brokers import Registration, register_controller
from metadata_topic.controller.features import SUPPORTED_FEATURES, unserved_features
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Endpoint, Provenance
from metadata_topic.image.records import (
    CONTROLLER_REGISTRATION_LEVEL,
    MetadataRecord,
    make,
)
from metadata_topic.quorum.batches import quorum_entries
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.format import METADATA_DIRECTORY, read_bootstrap
from metadata_topic.quorum.metadata_log import MetadataLog
from metadata_topic.quorum.quorum_state_file import QuorumStateFile
from metadata_topic.quorum.recovery import QuorumFacts, Recovered, recover
from metadata_topic.quorum.snapshots import SnapshotFiles, SnapshotId
from metadata_topic.quorum.snapshotter import Snapshotter
from metadata_topic.quorum.voter_check import QuorumConfigError, find_voters
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.events import (
    AdvanceHighWatermark,
    AppendStartOfEpoch,
    Closing,
    Effect,
    Flushed,
    FlushLog,
    PersistElection,
    Started,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey, VoterSet
from runtime.clock import Clock
from runtime.dice import Dice
from runtime.disk import Disk
from runtime.executors import Pool
from runtime.scheduler import Scheduler, Timer

__all__ = ["MetadataNode", "MetadataUnavailable", "QuorumConfigError"]

_log = logging.getLogger(__name__)

R = TypeVar("R")
Subscriber = Callable[[MetadataImage, MetadataDelta], None]
Decide = Callable[[MetadataImage], ControllerResult[R]]

_SNAPSHOT_CHECK_MS: Final = 60_000


class MetadataUnavailable(KafkaError):
    """The metadata log cannot take records: its disk failed, or the node is closed."""

    code = ErrorCode.NOT_CONTROLLER


class MetadataNode:
    """See the module.

    Attributes:
        image: the committed metadata; replaced as a whole, safe to keep.
    """

    def __init__(
        self,
        log_dir: Path,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: bytes,
        disk: Disk,
        clock: Clock,
        pool: Pool,
        dice: Dice,
        static_voters: Sequence[int] = (),
        controller_endpoints: Sequence[Endpoint] = (),
        config: MetadataLogConfig | None = None,
        scheduler: Scheduler | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Take the ports; nothing is touched before `start`.

        Args:
            log_dir: the metadata log directory (its lock is held by the caller); holds
                `bootstrap.checkpoint` and `__cluster_metadata-0`.
            node_id: `node.id`.
            cluster_id: of the cluster this node belongs to.
            directory_id: of `log_dir`, from its meta.properties (16 bytes).
            disk: files.
            clock: times of batches and snapshots.
            pool: fsyncs and snapshot files (log-io).
            dice: makes the id of this life as a controller.
            static_voters: ids in `controller.quorum.voters`; none with a dynamic quorum.
            controller_endpoints: where this controller listens for others.
            config: settings of the log.
            scheduler: looks once a minute whether a snapshot is due by time; without it only
                commits do.
            on_failure: told once when the node cannot go on.
        """
        self.image = EMPTY_IMAGE
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._key = ReplicaKey(node_id, directory_id)
        self._log_dir = log_dir
        self._directory = log_dir / METADATA_DIRECTORY
        self._disk = disk
        self._clock = clock
        self._pool = pool
        self._static_voters = tuple(static_voters)
        self._registration = Registration(
            node_id, dice.uuid(), tuple(controller_endpoints), SUPPORTED_FEATURES
        )
        self._config = config or MetadataLogConfig()
        self._scheduler = scheduler
        self._on_failure = on_failure
        self._subscribers: list[Subscriber] = []
        self._tasks: set[asyncio.Task[object]] = set()
        self._lock = asyncio.Lock()
        self._timer: Timer | None = None
        self._failure: BaseException | None = None
        self._state_file = QuorumStateFile(self._directory, disk)
        self._files = SnapshotFiles(self._directory, disk)
        self._facts = QuorumFacts()
        self._is_started = False
        # Set by start.
        self._core: RaftCore
        self._metadata_log: MetadataLog
        self._loader: ImageLoader
        self._snapshotter: Snapshotter

    # -- facts ----------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The current epoch of the metadata quorum."""
        return self._core.epoch

    @property
    def leader_id(self) -> int:
        """Who leads the quorum; -1 if nobody is known to."""
        return -1 if self._core.leader_id is None else self._core.leader_id

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""
        return self._core.role is Role.LEADER

    @property
    def voters(self) -> VoterSet:
        """Who votes."""
        return self._core.voters

    @property
    def kraft_version(self) -> int:
        """0 with static voters, 1 with voters in the log."""
        return self._facts.kraft_version

    @property
    def high_watermark(self) -> int:
        """First offset that is not committed (exclusive end)."""
        return self._core.high_watermark

    @property
    def log_end_offset(self) -> int:
        """First offset not written yet (exclusive end)."""
        return self._metadata_log.end_offset

    @property
    def log_start_offset(self) -> int:
        """First offset still in the log."""
        return self._metadata_log.start_offset

    @property
    def latest_snapshot_id(self) -> SnapshotId | None:
        """The newest snapshot on disk."""
        return self._snapshotter.last_id

    @property
    def failure(self) -> BaseException | None:
        """What ended the node, None while it is well (for health)."""
        return self._failure

    # -- start ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the disk, open a new epoch, and on the first start write the bootstrap records.

        Synchronous: nothing of the process works before the metadata is there.

        Raises:
            QuorumConfigError: this node is not the quorum's voter.
            NotFormattedError: the first start finds no bootstrap records.
            MissingMetadataError, UnknownMetadataRecordError, QuorumStateError: the disk holds what
                cannot be relied on; nothing was changed.
            OSError, KafkaStorageError: the disk failed.
        """
        self._disk.make_dirs(self._directory)
        self._disk.fsync_path(self._log_dir)  # or a power cut takes the directory, votes and all
        election = self._state_file.read()
        recovered = recover(
            self._directory,
            files=self._files,
            config=self._config,
            disk=self._disk,
            clock=self._clock,
        )
        self._facts = recovered.facts
        self._metadata_log = recovered.log
        self._loader = recovered.loader
        voters = find_voters(recovered.facts, self._key, self._static_voters)
        is_first_start = recovered.loader.is_blank
        bootstrap = read_bootstrap(self._log_dir, self._disk) if is_first_start else []
        static = recovered.facts.kraft_version == 0
        self._core = RaftCore(self._key, voters, voters_in_log=static or recovered.facts.in_log)
        snapshot_epoch = 0 if recovered.snapshot_id is None else recovered.snapshot_id.epoch
        last_epoch = max(recovered.log.last_epoch, snapshot_epoch)
        replayed = recovered.loader.record_count
        self._snapshotter = self._make_snapshotter(recovered)
        self._run(self._core.handle(Started(election, last_epoch, self.log_end_offset)))
        self._activate(bootstrap)
        self._is_started = True
        unserved = unserved_features(self.image)
        if unserved:
            _log.warning("finalised features that are not served here: %s", unserved)
        _log.info(
            "metadata is ready: epoch=%d offset=%d topics=%d partitions=%d replayed=%d",
            self.leader_epoch,
            self.image.provenance.offset,
            len(self.image.topics_by_id),
            self.image.partition_count,
            replayed,
        )
        if self._scheduler is not None:
            self._timer = self._scheduler.every(
                _SNAPSHOT_CHECK_MS, self._snapshot_if_due, "metadata-snapshot"
            )

    def _make_snapshotter(self, recovered: Recovered) -> Snapshotter:
        return Snapshotter(
            files=self._files,
            log=recovered.log,
            facts=lambda: self._facts,
            config=self._config,
            clock=self._clock,
            pool=self._pool,
            last_id=recovered.snapshot_id,
            replayed_bytes=recovered.bytes_after_snapshot,
            replayed_records=recovered.loader.record_count,
        )

    def _activate(self, bootstrap: Sequence[MetadataRecord]) -> None:
        """What a new leader owes the log before anybody may ask it for something."""
        if self._loader.in_transaction:
            # Its writer died before the end; the records in it were never visible.
            self._write_now([make("AbortTransactionRecord", reason="the controller restarted")])
        if bootstrap:
            minimum = self._config.min_insync_replicas
            self._write_now(activation_records(bootstrap, min_insync_replicas=minimum))
        self.image, _ = self._loader.take()
        if self.image.metadata_version >= CONTROLLER_REGISTRATION_LEVEL:
            self._write_now(register_controller(self.image, self._registration).records)
            self.image, _ = self._loader.take()

    def _write_now(self, records: Sequence[MetadataRecord]) -> None:
        """Append and commit without waiting for the loop; only while starting."""
        timestamp_ms = self._clock.wall_ms()
        for record in records:
            self._loader.add(record)
        self._metadata_log.append_decision(
            records, epoch=self.leader_epoch, timestamp_ms=timestamp_ms
        )
        self._metadata_log.flush()
        self._run(self._core.handle(Flushed(self.log_end_offset)))
        self._end_of_batch(timestamp_ms)

    def _run(self, effects: Sequence[Effect]) -> None:
        """Carry out effects in their order."""
        for effect in effects:
            match effect:
                case PersistElection(election):
                    self._state_file.write(
                        election, kraft_version=self.kraft_version, voters=self._core.voters
                    )
                case AppendStartOfEpoch():
                    self._open_epoch(effect)
                case FlushLog():
                    self._metadata_log.flush()
                    self._run(self._core.handle(Flushed(self.log_end_offset)))
                case AdvanceHighWatermark(offset):
                    self._metadata_log.set_high_watermark(offset)
                case _:
                    assert_never(effect)

    def _open_epoch(self, effect: AppendStartOfEpoch) -> None:
        entries = [leader_change(self.node_id, effect.voters.ids, effect.granting)]
        if effect.with_voters:
            entries += quorum_entries(self.kraft_version, effect.voters)
            self._facts.in_log = True
        timestamp_ms = self._clock.wall_ms()
        self._metadata_log.append_controls(entries, epoch=effect.epoch, timestamp_ms=timestamp_ms)
        self._end_of_batch(timestamp_ms)

    def _end_of_batch(self, timestamp_ms: int) -> None:
        self._loader.end_of_batch(
            Provenance(self.log_end_offset - 1, self.leader_epoch, timestamp_ms)
        )

    # -- decisions ------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(image, delta)` after each commit that changed something.

        It runs on the event loop before the decision's answer is given, and must be quick. An
        error in it is a bug that leaves the process with stale state, so it ends the node.
        """
        self._subscribers.append(subscriber)

    async def submit(self, decide: Decide[R]) -> R:
        """Take a decision and make it durable.

        Args:
            decide: a controller function on the newest image; no records means nothing to write.

        Returns:
            The decision's response, after its records are committed and subscribers know. If the
            caller is cancelled, the decision is carried through all the same.

        Raises:
            KafkaError: whatever `decide` raises; nothing was written.
            MetadataUnavailable: the log cannot take records.
        """
        task = asyncio.ensure_future(self._decide(decide))
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return await asyncio.shield(task)

    def _task_done(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: a cancelled caller does not collect it

    async def _decide(self, decide: Decide[R]) -> R:
        async with self._lock:
            if self._failure is not None or not (self._is_started and self.is_leader):
                raise MetadataUnavailable("the metadata log takes no records") from self._failure
            result = decide(self.image)
            if result.records:
                await self._commit(result.records)
            return result.response

    async def _commit(self, records: Sequence[MetadataRecord]) -> None:
        try:
            for record in records:
                self._loader.add(record)
        except Exception:
            self._loader = ImageLoader(self.image)  # half a decision must not show up later
            raise
        timestamp_ms = self._clock.wall_ms()
        try:
            size_bytes = self._metadata_log.append_decision(
                records, epoch=self.leader_epoch, timestamp_ms=timestamp_ms
            )
            await self._pool.run(self._metadata_log.flush)
        except (OSError, KafkaError) as error:
            self._fail(error)
            raise MetadataUnavailable("the disk of the metadata log failed") from error
        self._run(self._core.handle(Flushed(self.log_end_offset)))
        self._end_of_batch(timestamp_ms)
        self.image, delta = self._loader.take()
        self._snapshotter.note_appended(size_bytes)
        self._publish(delta)
        self._snapshot_if_due()

    def _publish(self, delta: MetadataDelta) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(self.image, delta)
            except Exception as error:
                _log.exception("a subscriber of the metadata failed")
                self._fail(error)
                raise

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        _log.error("the metadata node cannot go on: %s", error)
        if self._on_failure is not None:
            self._on_failure(error)

    # -- snapshots and the end ------------------------------------------------------------------

    def _snapshot_if_due(self) -> None:
        if self._failure is None and self.is_leader and self._snapshotter.is_due(self.image):
            task = asyncio.ensure_future(self._snapshotter.make(self.image))
            self._tasks.add(task)
            task.add_done_callback(self._task_done)

    async def snapshot(self) -> SnapshotId | None:
        """Make a snapshot of the current image now; None if it could not be written."""
        return await self._snapshotter.make(self.image)

    async def close(self) -> None:
        """Finish what is under way, then let go of the log; further decisions are refused.

        Fine to call if `start` failed or never came.
        """
        if self._timer is not None:
            self._timer.cancel()
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        async with self._lock:
            if not self._is_started:
                return
            self._run(self._core.handle(Closing()))
            if self._failure is None:
                self._metadata_log.close()
