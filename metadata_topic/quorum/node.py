"""The metadata node: log, image and controller of one process, put together.

    node = MetadataNode(log_dir, NodeIdentity(...), ports)
    node.start()                                  # reads the disk, opens a new epoch
    node.subscribe(lambda image, delta: ...)
    created = await node.submit(lambda image: create_topics(image, ...))

Decisions are taken one after the other on the event loop: each sees the image that the one before
left, its records are on disk before anybody hears of them, and its answer comes last. Records are
encoded, decoded and replayed before they are written (`decision_batches`): what cannot be read back
must never get into the log, because every later start would fail on it. A decision that fails there
leaves nothing behind.

A large decision is taken and prepared in steps, with other work of the loop in between. Until its
last step nothing of it is in the log, so a kill leaves all of it or nothing.

From the first byte written on there is no way back: any error then ends the node, because nobody
knows what is in the log, and `on_failure` is told once.
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
from metadata_topic.controller.result import Decided
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import CONTROLLER_REGISTRATION_LEVEL, MetadataRecord
from metadata_topic.quorum.batches import quorum_entries
from metadata_topic.quorum.config import MetadataLogConfig, NodeIdentity
from metadata_topic.quorum.deadlines import DECISION_TIMEOUT_MS, DecisionTimedOut, wait_for_all
from metadata_topic.quorum.decision_batches import (
    BatchPlace,
    PreparedDecision,
    abort_batch,
    decide_and_prepare,
    prepare_decision,
)
from metadata_topic.quorum.format import METADATA_DIRECTORY, read_bootstrap
from metadata_topic.quorum.metadata_log import MetadataLog
from metadata_topic.quorum.quorum_state_file import QuorumStateFile
from metadata_topic.quorum.recovery import FoundMetadata, read_directory, repair
from metadata_topic.quorum.snapshots import SnapshotFiles
from metadata_topic.quorum.snapshotter import Snapshotter
from metadata_topic.quorum.voter_check import QuorumConfigError, find_voters
from metadata_topic.raft.messages import BatchFacts
from metadata_topic.raft.roles import Role
from metadata_topic.raft.snapshot_id import SnapshotId
from metadata_topic.raft.sole_core import RaftCore
from metadata_topic.raft.sole_events import (
    AdvanceHighWatermark,
    AppendStartOfEpoch,
    Closing,
    Effect,
    Flushed,
    FlushLog,
    PersistElection,
    Started,
)
from metadata_topic.raft.voter_history import QuorumFacts, VoterHistory
from metadata_topic.raft.voters import ReplicaKey, VoterSet
from runtime.collector import resting_collector
from runtime.ports import Ports
from runtime.scheduler import Timer
from runtime.turns import run_in_steps

__all__ = ["MetadataNode", "MetadataUnavailable", "NodeIdentity", "QuorumConfigError"]

log = logging.getLogger(__name__)

R = TypeVar("R")
Subscriber = Callable[[MetadataImage, MetadataDelta], None]
Decide = Callable[[MetadataImage], Decided[R]]

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
        identity: NodeIdentity,
        ports: Ports,
        config: MetadataLogConfig | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Take the ports; nothing is touched before `start`.

        Args:
            log_dir: the metadata log directory (its lock is held by the caller); holds
                `bootstrap.checkpoint` and `__cluster_metadata-0`.
            identity: of this node.
            ports: its pool `log-commit` flushes; its scheduler ends the waiting for
                late decisions, and looks once a minute whether a snapshot is due by time.
            config: settings of the log.
            on_failure: told once when the node cannot go on.
        """
        self.image = EMPTY_IMAGE
        self.node_id = identity.node_id
        self.cluster_id = identity.cluster_id
        self._key = ReplicaKey(identity.node_id, identity.directory_id)
        self._log_dir = log_dir
        self._directory = log_dir / METADATA_DIRECTORY
        self._ports = ports
        self._disk = ports.disk
        self._clock = ports.clock
        self._pool = ports.executors.commit
        self._scheduler = ports.scheduler
        self._registration = Registration(
            identity.node_id, ports.dice.uuid(), identity.endpoints, SUPPORTED_FEATURES
        )
        self._config = config or MetadataLogConfig()
        self._on_failure = on_failure
        self._subscribers: list[Subscriber] = []
        self._tasks: set[asyncio.Task[object]] = set()
        self._lock = asyncio.Lock()
        self._timer: Timer | None = None
        self._failure: BaseException | None = None
        self._state_file = QuorumStateFile(self._directory, ports.disk)
        self._files = SnapshotFiles(
            self._directory, ports.disk, ports.dice, cluster_id=self.cluster_id
        )
        self._history = VoterHistory([(0, QuorumFacts())])
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
        return self._history.latest.kraft_version

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

    def start(self, check: Callable[[MetadataImage], None] | None = None) -> None:
        """`open` for callers that may wait, and make snapshots when they are due.

        Raises:
            As `open`.
        """
        if not self._is_started:
            self.open(check)
        self._timer = self._scheduler.every(
            _SNAPSHOT_CHECK_MS, self._snapshot_if_due, "metadata-snapshot"
        )

    def open(
        self,
        check: Callable[[MetadataImage], None] | None = None,
        check_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the disk, open a new epoch, and on the first start write the bootstrap records.

        On a thread that may wait; `start` comes after it, and nobody else uses the node before.

        Args:
            check: sees the metadata as they were found, before anything is written; what it raises
                ends the start.
            check_stop: called between batches while nothing is changed yet; raises to end it here.

        Raises:
            QuorumConfigError: this node is not the quorum's voter.
            NotFormattedError: the first start finds no bootstrap records.
            UnusableMetadataError: the disk holds what cannot be relied on.
            OSError, KafkaStorageError: the disk failed.
            With any of the first three, and what the checks raise, nothing on the disk was changed.
        """
        election = self._state_file.read()
        found = read_directory(
            self._directory, files=self._files, disk=self._disk, check_stop=check_stop
        )
        facts = found.history.latest
        voters = find_voters(facts, self._key, self._config.static_voters)
        bootstrap = read_bootstrap(self._log_dir, self._disk) if found.loader.is_blank else []
        if check is not None:
            check(found.loader.take()[0])
        self._metadata_log = repair(
            found, files=self._files, config=self._config, disk=self._disk, clock=self._clock
        )
        self._history = found.history
        self._loader = found.loader
        static = facts.kraft_version == 0
        self._core = RaftCore(self._key, voters, voters_in_log=static or facts.in_log)
        replayed = found.loader.record_count
        self._snapshotter = self._make_snapshotter(found)
        self._run(self._core.handle(Started(election, found.last_epoch, self.log_end_offset)))
        self._activate(bootstrap)
        self._metadata_log.note_flushed()
        self._is_started = True
        if unserved := unserved_features(self.image):
            log.warning("finalised features that are not served here: %s", unserved)
        log.info(
            "metadata is ready: epoch=%d offset=%d topics=%d partitions=%d replayed=%d",
            self.leader_epoch,
            self.image.provenance.offset,
            len(self.image.topics_by_id),
            self.image.partition_count,
            replayed,
        )

    def _make_snapshotter(self, found: FoundMetadata) -> Snapshotter:
        return Snapshotter(
            files=self._files,
            log=self._metadata_log,
            found=found,
            note_flushed=self._note_flushed,
            config=self._config,
            ports=self._ports,
        )

    def _activate(self, bootstrap: Sequence[MetadataRecord]) -> None:
        """What a new leader owes the log before anybody may ask it for something."""
        if self._loader.in_transaction:
            # Its writer died before the end; the records in it were never visible.
            self._abort_transaction()
        self.image, _ = self._loader.take()
        if bootstrap:
            minimum = self._config.min_insync_replicas
            self._write_now(activation_records(bootstrap, min_insync_replicas=minimum))
        if self.image.metadata_version >= CONTROLLER_REGISTRATION_LEVEL:
            self._write_now(register_controller(self.image, self._registration).records)

    def _abort_transaction(self) -> None:
        place = self._place()
        abort, batch = abort_batch(place)
        self._append_now(batch, place.timestamp_ms)
        self._loader.add(abort)
        self._end_of_batch(place.timestamp_ms)

    def _write_now(self, records: Sequence[MetadataRecord]) -> None:
        """Append and commit without waiting for the loop; only while starting."""
        if records:
            place, limit = self._place(), self._config.max_batch_bytes
            prepared = prepare_decision(
                records, base=self.image, place=place, batch_bytes_max=limit
            )
            self._append_now(prepared.data, place.timestamp_ms)
            self.image, _ = prepared.loader.take()

    def _append_now(self, data: bytearray, timestamp_ms: int) -> None:
        self._metadata_log.append(data, timestamp_ms=timestamp_ms)
        self._run(self._core.handle(Flushed(self._metadata_log.flush())))

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
                    self._run(self._core.handle(Flushed(self._metadata_log.flush())))
                case AdvanceHighWatermark(offset):
                    self._metadata_log.set_high_watermark(offset)
                case _:
                    assert_never(effect)

    def _open_epoch(self, effect: AppendStartOfEpoch) -> None:
        entries = [leader_change(self.node_id, effect.voters.ids, effect.granting)]
        if effect.with_voters:
            entries += quorum_entries(self.kraft_version, effect.voters)
        timestamp_ms, base = self._clock.wall_ms(), self.log_end_offset
        self._metadata_log.append_controls(entries, epoch=effect.epoch, timestamp_ms=timestamp_ms)
        if effect.with_voters:
            end = self.log_end_offset
            self._history.note(BatchFacts(base, end, effect.epoch, voters=effect.voters))
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

    async def submit(self, decide: Decide[R], *, timeout_ms: int = DECISION_TIMEOUT_MS) -> R:
        """Take a decision and make it durable.

        Args:
            decide: a controller function on the newest image, at once or in steps; no records
                means nothing to write. It may be called twice, and must not care.
            timeout_ms: how long the caller waits; 0 or less for the usual time. A decision that
                waits for its turn until then is not taken; one that was begun is carried through.

        Returns:
            The decision's response, after its records are committed and subscribers know. If the
            caller is cancelled, the decision is carried through all the same.

        Raises:
            KafkaError: whatever `decide` raises, or the records cannot be written; nothing was.
            DecisionTimedOut: it took too long; it may be carried out or not.
            MetadataUnavailable: the log cannot take records.
        """
        timeout_ms = timeout_ms if timeout_ms > 0 else DECISION_TIMEOUT_MS
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        task = asyncio.ensure_future(self._decide(decide, deadline_ms))
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        await wait_for_all({task}, timeout_ms, self._scheduler)
        if not task.done():
            raise DecisionTimedOut(f"the metadata log did not take the change in {timeout_ms} ms")
        return task.result()

    def _task_done(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: a cancelled caller does not collect it

    async def _decide(self, decide: Decide[R], deadline_ms: int) -> R:
        async with self._lock:
            self._check_open()
            if self._clock.monotonic_ms() >= deadline_ms:
                raise DecisionTimedOut("the change waited for others until its time was over")
            limit = self._config.max_batch_bytes
            steps = decide_and_prepare.steps(
                decide, self.image, self._place(), batch_bytes_max=limit
            )
            with resting_collector():
                response, prepared = await run_in_steps(steps)
            if prepared is not None:
                self._check_open()
                await self._commit(prepared)
            return response

    def _check_open(self) -> None:
        if self._failure is not None or not (self._is_started and self.is_leader):
            raise MetadataUnavailable("the metadata log takes no records") from self._failure

    def _place(self) -> BatchPlace:
        return BatchPlace(
            self.log_end_offset,
            self.leader_epoch,
            self._clock.wall_ms(),
            self._metadata_log.flushed_end,
        )

    async def _commit(self, prepared: PreparedDecision) -> None:
        before = self.log_end_offset
        try:
            self._metadata_log.append(prepared.data, timestamp_ms=self._clock.wall_ms())
            end_offset = await self._pool.run(self._metadata_log.flush)
            self._run(self._core.handle(Flushed(end_offset)))
            self.image, delta = prepared.loader.take()
            assert self.image.provenance.end_offset == self.high_watermark
        except BaseException as error:
            if isinstance(error, KafkaError) and self._metadata_log.is_untouched(before):
                # Descriptors or memory ran out: nothing was written, the disk is not to blame.
                raise MetadataUnavailable("the metadata log takes no records now") from error
            # What the log holds now is not known: another decision could contradict it.
            self._fail(error)
            if isinstance(error, Exception):
                raise MetadataUnavailable("the metadata log failed") from error
            raise
        self._snapshotter.note_appended(len(prepared.data))
        self._publish(delta)
        self._snapshot_if_due()

    def _publish(self, delta: MetadataDelta) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(self.image, delta)
            except Exception as error:
                log.exception("a subscriber of the metadata failed")
                self._fail(error)
                raise

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        log.error("the metadata node cannot go on: %s", error)
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

    async def _note_flushed(self) -> None:
        async with self._lock:
            if self._failure is None:
                await self._pool.run(self._metadata_log.note_flushed)

    async def close(self) -> None:
        """Finish what is under way, then let go of the log; further decisions are refused.

        Fine to call if `start` failed or never came.

        Raises:
            MetadataUnavailable: something under way did not end in time; the log is left as it is,
                as after a kill.
            OSError, KafkaStorageError: the disk failed.
        """
        if self._timer is not None:
            self._timer.cancel()
        while self._tasks:
            await wait_for_all(self._tasks, self._config.close_timeout_ms, self._scheduler)
            if any(not task.done() for task in self._tasks):
                late = DecisionTimedOut(
                    f"{len(self._tasks)} changes or snapshots of the metadata did not end in "
                    f"{self._config.close_timeout_ms} ms"
                )
                self._fail(late)
                raise MetadataUnavailable("the metadata log did not stop in time") from late
        async with self._lock:
            if not self._is_started:
                return
            self._run(self._core.handle(Closing()))
            if self._failure is None:
                self._metadata_log.close()
