"""All logs of a broker: opens them at start, spreads new ones, keeps checkpoints, deletes, closes.

Owned by the event loop's thread; flushes, checkpoints and deletions run on pools. A directory
whose disk fails goes offline with all its logs (error 56) while the others serve on; a restart
recovers it. A log that cannot be opened without loss is offline alone, its files as they are.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.log.partition_log import PartitionLog
from local_log.log.results import LogHooks
from local_log.log.retention_policy import Reason
from local_log.manager.checkpoints import Checkpoints
from local_log.manager.closing import close_side_by_side
from local_log.manager.creation import Creation, LogCreation, Made, NewLog
from local_log.manager.deletion import DelayedDeletion, Removal
from local_log.manager.dir_failures import DirFailures
from local_log.manager.future_dirs import FoundFuture, NewBeginning
from local_log.manager.hosted_logs import HostedLogs
from local_log.manager.load_run import LoadRun
from local_log.manager.loading import Loaded, Loader, LoadFacts, LoadRequest, Refused, TargetFor
from local_log.manager.log_dir import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    OWN_NAMES,
    RECOVERY_POINTS,
    LogDir,
)
from local_log.manager.maintenance import LogMaintenance, flush
from local_log.manager.moving import LogMoves
from local_log.manager.removal import LogRemoval
from local_log.manager.replacement import Future, LogReplacement, Swap, Swapped
from local_log.manager.retention_pass import RetentionPass
from local_log.segment.aborted_index import AbortedCache
from runtime.incidents import Incident
from runtime.ports import Ports

log = logging.getLogger(__name__)

PRODUCER_EXPIRATION_MS = 24 * 3600 * 1000


class LogManager:
    """See the module.

    Args:
        dirs: `log.dirs`, at least one.
        config_for: settings of a topic by name, asked when its log is opened.
        ports: pools do what waits for a disk.
        to_loop: calls a function on the loop soon, from any thread; None: at once.
        own_names: what else lies in a log directory rightly, and is not reported as unknown.

    Attributes:
        failures: of log directories.
        moves: of logs to other log directories.
        interrupted: copies that moves of earlier incarnations have left.
        preferred: where logs are to be begun, if that was said.
    """

    def __init__(
        self,
        dirs: Sequence[Path],
        config_for: Callable[[str], LogConfig],
        ports: Ports,
        *,
        to_loop: Callable[[Callable[[], None]], object] | None = None,
        own_names: Iterable[str] = (),
    ) -> None:
        self.dirs = [LogDir(path, ports.disk) for path in dirs]
        self._config_for, self._ports = config_for, ports
        self._disk, self._clock, self._rng = ports.disk, ports.clock, ports.rng
        self._background, self._commit = ports.executors.background, ports.executors.commit
        self._to_loop = to_loop or (lambda call: call())
        self._own_names = OWN_NAMES | frozenset(own_names)
        self._aborted = AbortedCache()
        self._hosted = hosted = HostedLogs()
        self.failures = DirFailures(hosted, self._to_loop, ports.executors.background)
        self.moves = LogMoves(ports, self.failures)
        self.interrupted: Sequence[FoundFuture] = ()
        self.preferred: dict[TopicPartition, LogDir] = {}
        self._deletion = DelayedDeletion(ports)
        self._checkpoints = Checkpoints(hosted, self.failures.blame)
        self._creation = LogCreation(
            ports,
            config_for=config_for,
            hooks_for=self._hooks,
            write_checkpoints=self._checkpoints.write,
            fail_dir=self.failures.blame,
        )
        self._removal = LogRemoval(
            ports, hosted, self._checkpoints, self._deletion, self.failures, config_for
        )
        self._replacement = LogReplacement(
            ports,
            hosted,
            deletion=self._deletion,
            failures=self.failures,
            hooks_for=self._hooks,
        )
        self.is_loaded = self._is_closed = False
        self._retention = RetentionPass(
            is_open=self.is_open,
            keep_log_starts=self.keep_log_starts,
            pool=self._background,
            scheduler=ports.scheduler,
        )
        self._maintenance = LogMaintenance(
            logs=self.all,
            is_open=self.is_open,
            pool=self._background,
            scheduler=ports.scheduler,
        )

    # -- start ----------------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the `.lock` of each directory.

        Raises:
            LockHeldError: another process works in one of them.
        """
        for directory in self.dirs:
            directory.prepare()
            directory.lock()

    def put_offline(self, path: Path, reason: Exception) -> None:
        """Say before `load` that a directory does not work: nothing in it is touched."""
        for directory in (one for one in self.dirs if one.path == path):
            directory.failure = reason

    def load_run(
        self, wanted: TargetFor | None = None, *, threads: int = 1, **facts: Unpack[LoadFacts]
    ) -> LoadRun:
        """Make what opens the logs that are wanted, recovering those not stopped cleanly.

        Its `run` works on its own threads and is called on one that may wait. What it returns is
        for `take`, on the loop.

        Args:
            wanted: what the metadata say of a partition of that name, None if nothing: then its
                directory is put aside by `set_aside`. Default: whatever is there is wanted.
            threads: of each log directory.
            facts: what else is known.
        """
        request = LoadRequest(
            config_for=self._config_for,
            hooks_for=self._hooks,
            own_names=self._own_names,
            # Whatever it is: what was not opened must not be taken for missing.
            fail_dir=self.failures.take_offline,
            wanted=wanted,
            **facts,
        )
        return LoadRun(Loader(self.dirs, self._ports, request), self.dirs, self._ports, threads)

    def load(
        self, wanted: TargetFor | None = None, *, threads: int = 1, **facts: Unpack[LoadFacts]
    ) -> None:
        """Open the logs, see `load_run`, and return when they are: for callers that may wait."""
        self.take(self.load_run(wanted, threads=threads, **facts).run())
        self.renew_checkpoints()

    def take(self, loaded: Loaded) -> None:
        """Make what was opened the logs of this broker."""
        for log, directory in loaded.opened:
            self._hosted.add(log, directory)
            if isinstance(directory.failure, OSError):
                log.set_offline(directory.failure)  # it failed while others were opened
        self._hosted.refuse(loaded.refused)
        self._removal.note(loaded)
        self.interrupted = loaded.moves
        self.is_loaded = True

    def renew_checkpoints(self) -> None:
        """After `take`, on a thread that may wait: write the checkpoints that were not sound."""
        # The next start reads where the metadata say then; the old entries stay until it is noted.
        moved_to = self._removal.moved_to()
        for directory in self.online_dirs():
            unsound = any(not directory.is_sound(name) for name in CHECKPOINTS)
            if unsound or directory in moved_to:
                self._checkpoints.write(directory, CHECKPOINTS)

    def _hooks(self, tp: TopicPartition, directory: LogDir) -> LogHooks:
        return LogHooks(
            delete_later=self._deletion.later,
            rolled=lambda: self._flush_later(tp),
            failed=lambda error: self.failures.take_offline(directory, error),
            before_truncation=partial(self._before_truncation, tp, directory),
            log_start_moved=lambda: self._checkpoints.keep_log_starts([tp]),
            aborted=self._aborted,
        )

    def _before_truncation(self, tp: TopicPartition, directory: LogDir, end_offset: int) -> None:
        self.moves.cut(tp, end_offset)
        self._checkpoints.lower(tp, directory, end_offset)

    # -- logs -----------------------------------------------------------------------------------

    @property
    def refused(self) -> Mapping[TopicPartition, Refused]:
        """Partitions whose files are here and that are not open."""
        return self._hosted.refused

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition."""
        return self._hosted.get(tp)

    def all(self) -> list[PartitionLog]:
        """Every log."""
        return self._hosted.all()

    def logs_in(self, directory: LogDir) -> dict[TopicPartition, PartitionLog]:
        """See `HostedLogs.logs_in`."""
        return self._hosted.logs_in(directory)

    def directory_of(self, tp: TopicPartition) -> LogDir | None:
        """The log directory a partition lives in."""
        return self._hosted.directory_of(tp)

    @property
    def clean_epoch(self) -> int:
        """Broker epoch of the last incarnation, where no directory has lost the end of a log.

        Else -1.

        DIFFERS: to Kafka a killed process is an unclean end. What it wrote is in the page cache, so
        only a machine that stopped since can have lost it (model of replication, F1).
        """
        epochs = {
            one.broker_epoch if one.was_clean else one.same_boot_epoch if one.works else -1
            for one in self.dirs
        }
        return epochs.pop() if len(epochs) == 1 else -1

    def note_running_incarnation(self, broker_epoch: int, incarnation_id: bytes) -> None:
        """Say in each directory which incarnation writes there; on a thread that may wait.

        Raises:
            OSError: a disk failed; the end of this incarnation will count as unclean.
        """
        for directory in self.online_dirs():
            directory.write_running_incarnation(broker_epoch, incarnation_id)

    def online_dirs(self) -> list[LogDir]:
        """The directories that work."""
        return [directory for directory in self.dirs if directory.works]

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None
    ) -> PartitionLog:
        """Begin one log, see `create_all`.

        Raises:
            KafkaStorageError: it could not be made.
        """
        new = NewLog(topic, partition, topic_id, config)
        made = self.create_all([new])[new.topic_partition]
        if isinstance(made, KafkaStorageError):
            raise made
        return made

    def create_all(
        self, wanted: Sequence[NewLog]
    ) -> dict[TopicPartition, PartitionLog | KafkaStorageError]:
        """Begin empty logs, each in the working directory that holds the fewest; durably.

        Returns:
            For each partition its log, or why there is none.
        """
        creation = self.plan_creation(wanted)
        return self.take_created(creation, creation.carry_out())

    def plan_creation(self, wanted: Sequence[NewLog]) -> Creation:
        """Plan to begin empty logs; on the loop.

        Only for replicas that never had a record; a log that is open already is given as it is.

        Returns:
            Its `carry_out` is for a pool thread, and `take_created` gets the result. Until then
            no other creation may be planned.
        """
        known: dict[TopicPartition, PartitionLog | KafkaStorageError] = {}
        new = []
        for one in wanted:
            tp = one.topic_partition
            log = self.get(tp)
            if log is not None:
                known[tp] = log
            elif tp in self.refused:
                known[tp] = KafkaStorageError(
                    f"{tp} has files here that are offline: {self.refused[tp].reason}"
                )
            else:
                new.append(one)
        counts = {directory: self._hosted.count_in(directory) for directory in self.online_dirs()}
        preferred = {
            tp: home for one in new if (home := self.preferred.pop(tp := one.topic_partition, None))
        }
        return Creation(known, partial(self._creation.make, new, counts, preferred))

    def take_created(
        self, creation: Creation, made: Made
    ) -> dict[TopicPartition, PartitionLog | KafkaStorageError]:
        """Take over what was begun; on the loop.

        Returns:
            For each partition its log, or why there is none.
        """
        taken = dict(creation.known)
        for tp, begun in made.items():
            if isinstance(begun, KafkaStorageError):
                taken[tp] = begun
                continue
            self._hosted.add(*begun)
            taken[tp], directory = begun
            if isinstance(directory.failure, OSError):  # meanwhile, when it was not among its logs
                begun[0].set_offline(directory.failure)
        return taken

    def delete(self, *partitions: TopicPartition) -> int:
        """See `LogRemoval.delete`."""
        return self._removal.delete(*partitions)

    def let_go(self, partitions: Iterable[TopicPartition], removal: Removal) -> None:
        """See `LogRemoval.let_go`; on the loop."""
        self._removal.let_go(partitions, removal)

    def remove(self, removal: Removal) -> None:
        """See `LogRemoval.remove`; on a pool thread."""
        self._removal.remove(removal)

    def build_future(self, tp: TopicPartition, beginning: NewBeginning) -> Future:
        """See `LogReplacement.build`; on a pool thread."""
        return self._replacement.build(tp, beginning)

    def drop_future(self, future: Future) -> None:
        """See `LogReplacement.drop`; on a pool thread."""
        self._replacement.drop(future)

    def plan_swap(self, future: Future) -> Swap:
        """See `LogReplacement.plan_swap`; on the loop.

        Its `carry_out` is for a pool thread, and `take_swapped` gets the result.
        """
        return self._replacement.plan_swap(future)

    def take_swapped(self, swap: Swap, swapped: Swapped) -> Swapped:
        """See `LogReplacement.take`; on the loop."""
        return self._replacement.take(swap, swapped)

    def set_aside(self) -> list[Path]:
        """See `LogRemoval.set_aside`."""
        return self._removal.set_aside()

    def run_deletions(self) -> None:
        """Unlink what has waited long enough, on the pool."""
        self._deletion.run()

    # -- periodic -------------------------------------------------------------------------------

    def _flush_later(self, tp: TopicPartition) -> None:
        """After a roll: what is closed is fsynced away from the loop; then its place is safe."""
        log = self.get(tp)
        if log is not None:
            self._background.submit(flush, log, log.segments.active.base_offset)

    def flush_due(self) -> None:
        """Flush on the pool where `flush.ms` has passed, see `log_maintenance`."""
        self._maintenance.flush_due(self._clock.wall_ms())

    def run_retention(self, now_ms: int) -> list[tuple[TopicPartition, int, Reason]]:
        """Roll what is due, drop what has expired, see `retention_pass`."""
        return self._retention.run(self.all(), now_ms)

    @property
    def retention(self) -> RetentionPass:
        """Passes over some of the logs, or whose end is waited for."""
        return self._retention

    def is_open(self, log: PartitionLog) -> bool:
        """Whether this log, and no later one of its name, is served."""
        tp, hosted = log.topic_partition, self._hosted
        return not self._is_closed and hosted.get(tp) is log and tp not in hosted.being_replaced

    def expire_producers(self, now_ms: int, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> None:
        """Forget producers that were silent for too long, see `log_maintenance`."""
        self._maintenance.expire_producers(now_ms, expiration_ms)

    # -- checkpoints ----------------------------------------------------------------------------

    def checkpoint_recovery_points(self) -> None:
        """Write how far each log was flushed."""
        self._checkpoint_all(RECOVERY_POINTS)

    def checkpoint_log_starts(self) -> None:
        """Write all log starts."""
        self._checkpoint_all(LOG_STARTS)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks."""
        self._checkpoint_all(HIGH_WATERMARKS)

    def _checkpoint_all(self, name: str) -> None:
        for directory in self.online_dirs():
            self._checkpoints.write(directory, [name])

    def keep_log_starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaStorageError]:
        """Make the log starts of these partitions survive a power cut; on return they do.

        Returns:
            Those whose log start is not kept, and why.
        """
        return self._checkpoints.keep_log_starts(partitions)

    def is_log_start_kept(self, tp: TopicPartition) -> bool:
        """Whether the log start of an open log is on the disk, or not known at all."""
        log, directory = self.get(tp), self.directory_of(tp)
        if log is None or directory is None or not log.log_start_known:
            return True
        return log.log_start_offset <= (directory.entry(LOG_STARTS, tp) or 0)

    def cleaned_to(self, tp: TopicPartition) -> int | None:
        """Below this offset a log is clean, as the checkpoint says; None: it says nothing."""
        directory = self.directory_of(tp)
        return None if directory is None else directory.entry(CLEANER_OFFSETS, tp)

    def note_cleaned(self, log: PartitionLog, offset: int) -> bool:
        """See `Checkpoints.note_cleaned`."""
        return self._checkpoints.note_cleaned(log, offset)

    # -- failure and end ------------------------------------------------------------------------

    def fail(self, directory: LogDir, error: OSError) -> None:
        """Take a directory offline whose disk failed elsewhere."""
        self.failures.take_offline(directory, error)

    def close(
        self,
        *,
        clean: bool = True,
        broker_epoch: int = -1,
        closed: Callable[[], object] = lambda: None,
    ) -> None:
        """Close every log, on a thread that may wait; with `clean` each directory is marked last.

        A directory with a log that is offline, or is not closed in time, gets no mark: it would say
        that this log, too, was closed whole. `closed` is told after each log.
        """
        self._is_closed = True
        self._deletion.close()
        for directory in self.dirs:
            logs = list(self._hosted.logs_in(directory).values())
            healthy = clean and self.is_loaded and directory.works
            is_whole = close_side_by_side(logs, self._commit, clean=healthy, closed=closed)
            if healthy and is_whole and self._checkpoints.write(directory, CHECKPOINTS):
                try:
                    if not self._hosted.refused_in(directory):
                        directory.write_clean_mark(broker_epoch)
                except OSError as error:
                    log.error(Incident.NO_CLEAN_STOP.line(path=directory.path, error=error))  # noqa: TRY400
            directory.unlock()
