"""All logs of a broker: opens and creates them, writes checkpoints, deletes and closes.

The event loop's thread owns it; flushes, checkpoints and deletions run on pools. A directory whose
disk fails goes offline with all its logs (error 56), and the others continue; a restart recovers
it. A log that cannot be opened without loss is offline alone, with its files unchanged.
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
    """The logs of one broker; on the loop unless a method says otherwise.

    Args:
        dirs: `log.dirs`, at least one.
        config_for: Returns a topic's settings by name; called when its log is opened.
        ports: Pools for work that waits for a disk.
        to_loop: Schedules a function on the loop, from any thread; None: it is called at once.
        own_names: Names of other files that belong in a log directory, and are not reported.

    Attributes:
        failures: Of log directories.
        moves: Of logs to other log directories.
        interrupted: Copies of unfinished moves of earlier incarnations.
        preferred: Directories in which to create certain logs.
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
            LockHeldError: Another process uses one of them.
        """
        for directory in self.dirs:
            directory.prepare()
            directory.lock()

    def put_offline(self, path: Path, reason: Exception) -> None:
        """Mark a directory as failed before `load`: nothing in it is touched."""
        for directory in (one for one in self.dirs if one.path == path):
            directory.failure = reason

    def load_run(
        self, wanted: TargetFor | None = None, *, threads: int = 1, **facts: Unpack[LoadFacts]
    ) -> LoadRun:
        """Return the run that opens the wanted logs, and recovers those without a clean shutdown.

        Its `run` uses threads of its own, and is called on a thread that may wait. Pass its result
        to `take`, on the loop.

        Args:
            wanted: The metadata's facts about a partition of that name, None without any: then its
                directory is put aside by `set_aside`. Default: every directory is wanted.
            threads: Number for each log directory.
            facts: Other facts.
        """
        request = LoadRequest(
            config_for=self._config_for,
            hooks_for=self._hooks,
            own_names=self._own_names,
            # Also a lack of descriptors: a log that was not opened must not be taken for missing.
            fail_dir=self.failures.take_offline,
            wanted=wanted,
            **facts,
        )
        return LoadRun(Loader(self.dirs, self._ports, request), self.dirs, self._ports, threads)

    def load(
        self, wanted: TargetFor | None = None, *, threads: int = 1, **facts: Unpack[LoadFacts]
    ) -> None:
        """Open the logs as `load_run` does.

        Returns when they are open. For callers that may wait.
        """
        self.take(self.load_run(wanted, threads=threads, **facts).run())
        self.renew_checkpoints()

    def take(self, loaded: Loaded) -> None:
        """Add the opened logs to this broker's."""
        for log, directory in loaded.opened:
            self._hosted.add(log, directory)
            if isinstance(directory.failure, OSError):
                log.set_offline(directory.failure)  # it failed while others were opened
        self._hosted.refuse(loaded.refused)
        self._removal.note(loaded)
        self.interrupted = loaded.moves
        self.is_loaded = True

    def renew_checkpoints(self) -> None:
        """Write the checkpoints that were not sound; after `take`, on a thread that may wait."""
        # The next start reads the directory that the metadata name then; old entries stay until
        # then.
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
        """Partitions with files here that are not open."""
        return self._hosted.refused

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition."""
        return self._hosted.get(tp)

    def all(self) -> list[PartitionLog]:
        """Return every log."""
        return self._hosted.all()

    def logs_in(self, directory: LogDir) -> dict[TopicPartition, PartitionLog]:
        """Return the open logs of a directory (a copy)."""
        return self._hosted.logs_in(directory)

    def directory_of(self, tp: TopicPartition) -> LogDir | None:
        """Return the log directory of a partition."""
        return self._hosted.directory_of(tp)

    @property
    def clean_epoch(self) -> int:
        """Broker epoch of the last incarnation, if no directory has lost the end of a log; else -1.

        DIFFERS: for Kafka a kill of the process is an unclean end. Its writes are in the page
        cache, so only a restart of the machine can have lost them (model of replication, F1).
        """
        epochs = {
            one.broker_epoch if one.was_clean else one.same_boot_epoch if one.works else -1
            for one in self.dirs
        }
        return epochs.pop() if len(epochs) == 1 else -1

    def note_running_incarnation(self, broker_epoch: int, incarnation_id: bytes) -> None:
        """Write into each directory which incarnation uses it; on a thread that may wait.

        Raises:
            OSError: A disk failed; the end of this incarnation will count as unclean.
        """
        for directory in self.online_dirs():
            directory.write_running_incarnation(broker_epoch, incarnation_id)

    def online_dirs(self) -> list[LogDir]:
        """The directories that work."""
        return [directory for directory in self.dirs if directory.works]

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None
    ) -> PartitionLog:
        """Create one log, as `create_all` does.

        Raises:
            KafkaStorageError: It could not be created.
        """
        new = NewLog(topic, partition, topic_id, config)
        made = self.create_all([new])[new.topic_partition]
        if isinstance(made, KafkaStorageError):
            raise made
        return made

    def create_all(
        self, wanted: Sequence[NewLog]
    ) -> dict[TopicPartition, PartitionLog | KafkaStorageError]:
        """Create empty logs, each in the working directory with the fewest; durable on return.

        Returns:
            The log of each partition, or the error.
        """
        creation = self.plan_creation(wanted)
        return self.take_created(creation, creation.carry_out())

    def plan_creation(self, wanted: Sequence[NewLog]) -> Creation:
        """Plan the creation of empty logs; on the loop.

        Only for replicas that never had a record; a log that is already open is returned unchanged.

        Returns:
            A plan whose `carry_out` is for a pool thread; its result goes to `take_created`. Until
            then no other creation may be planned.
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
        """Add the created logs to this broker's; on the loop.

        Returns:
            The log of each partition, or the error.
        """
        taken = dict(creation.known)
        for tp, begun in made.items():
            if isinstance(begun, KafkaStorageError):
                taken[tp] = begun
                continue
            self._hosted.add(*begun)
            taken[tp], directory = begun
            if isinstance(directory.failure, OSError):  # it failed before this log was added
                begun[0].set_offline(directory.failure)
        return taken

    def delete(self, *partitions: TopicPartition) -> int:
        """Delete logs as `LogRemoval.delete` does; returns how many there were."""
        return self._removal.delete(*partitions)

    def let_go(self, partitions: Iterable[TopicPartition], removal: Removal) -> None:
        """Close and drop logs before `remove`, as `LogRemoval.let_go` does; on the loop."""
        self._removal.let_go(partitions, removal)

    def remove(self, removal: Removal) -> None:
        """Rename the directories of dropped logs, as `LogRemoval.remove` does; on a pool thread."""
        self._removal.remove(removal)

    def build_future(self, tp: TopicPartition, beginning: NewBeginning) -> Future:
        """Create a log that will replace the present one, as `LogReplacement.build` does.

        On a pool.
        """
        return self._replacement.build(tp, beginning)

    def drop_future(self, future: Future) -> None:
        """Remove a log that will not replace another, as `LogReplacement.drop` does.

        On a pool thread.
        """
        self._replacement.drop(future)

    def plan_swap(self, future: Future) -> Swap:
        """Close the present log for a swap, as `LogReplacement.plan_swap` does; on the loop.

        The plan's `carry_out` is for a pool thread; its result goes to `take_swapped`.
        """
        return self._replacement.plan_swap(future)

    def take_swapped(self, swap: Swap, swapped: Swapped) -> Swapped:
        """Complete a swap, as `LogReplacement.take` does; on the loop."""
        return self._replacement.take(swap, swapped)

    def set_aside(self) -> list[Path]:
        """Put unwanted partition directories aside, as `LogRemoval.set_aside` does."""
        return self._removal.set_aside()

    def run_deletions(self) -> None:
        """Unlink on the pool all files that are due."""
        self._deletion.run()

    # -- periodic -------------------------------------------------------------------------------

    def _flush_later(self, tp: TopicPartition) -> None:
        """Flush the closed segments after a roll, on a pool thread."""
        log = self.get(tp)
        if log is not None:
            self._background.submit(flush, log, log.segments.active.base_offset)

    def flush_due(self) -> None:
        """Flush on the pool logs whose `flush.ms` has passed, see `maintenance`."""
        self._maintenance.flush_due(self._clock.wall_ms())

    def run_retention(self, now_ms: int) -> list[tuple[TopicPartition, int, Reason]]:
        """Roll due segments and delete expired ones, see `retention_pass`."""
        return self._retention.run(self.all(), now_ms)

    @property
    def retention(self) -> RetentionPass:
        """For passes over some of the logs, or with a callback at the end."""
        return self._retention

    def is_open(self, log: PartitionLog) -> bool:
        """True if this log, and no later one of its name, is in use."""
        tp, hosted = log.topic_partition, self._hosted
        return not self._is_closed and hosted.get(tp) is log and tp not in hosted.being_replaced

    def expire_producers(self, now_ms: int, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> None:
        """Remove producers that were silent too long, see `maintenance`."""
        self._maintenance.expire_producers(now_ms, expiration_ms)

    # -- checkpoints ----------------------------------------------------------------------------

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points."""
        self._checkpoint_all(RECOVERY_POINTS)

    def checkpoint_log_starts(self) -> None:
        """Write the log starts."""
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
        """Make the log starts of these partitions durable, on return.

        Returns:
            Partitions whose log start is not durable, with the error.
        """
        return self._checkpoints.keep_log_starts(partitions)

    def is_log_start_kept(self, tp: TopicPartition) -> bool:
        """True if the log start is in the checkpoint, or unknown, or the log is not open."""
        log, directory = self.get(tp), self.directory_of(tp)
        if log is None or directory is None or not log.log_start_known:
            return True
        return log.log_start_offset <= (directory.entry(LOG_STARTS, tp) or 0)

    def cleaned_to(self, tp: TopicPartition) -> int | None:
        """Offset below which a log is clean, from the checkpoint; None without an entry."""
        directory = self.directory_of(tp)
        return None if directory is None else directory.entry(CLEANER_OFFSETS, tp)

    def note_cleaned(self, log: PartitionLog, offset: int) -> bool:
        """Write that a log is clean below `offset`, as `Checkpoints.note_cleaned` does."""
        return self._checkpoints.note_cleaned(log, offset)

    # -- failure and end ------------------------------------------------------------------------

    def fail(self, directory: LogDir, error: OSError) -> None:
        """Take a directory offline whose disk failed at an access elsewhere."""
        self.failures.take_offline(directory, error)

    def close(
        self,
        *,
        clean: bool = True,
        broker_epoch: int = -1,
        closed: Callable[[], object] = lambda: None,
    ) -> None:
        """Close every log, on a thread that may wait; `clean` also marks each directory.

        The mark covers all logs of a directory. So a directory gets none if one of its logs is
        offline or is not closed in time. `closed` is called after each log.
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
