"""All logs of a broker: opens them at start, spreads new ones, keeps checkpoints, deletes, closes.

Owned by the event loop's thread; flushes, checkpoints and deletions run on `log-io`. A directory
whose disk fails goes offline with all its logs (error 56) while the others serve on; a restart
recovers it. A log that cannot be opened without loss is offline alone, its files as they are.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kafka_protocol.files.segment_names import partition_dir, renamed_dir
from kafka_protocol.types import ZERO_UUID, TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError, LogClosed
from local_log.log_checkpoints import Checkpoints
from local_log.log_creation import LogCreation, NewLog
from local_log.log_deletion import DelayedDeletion
from local_log.log_dir import (
    CHECKPOINTS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    OWN_NAMES,
    RECOVERY_POINTS,
    LogDir,
)
from local_log.log_loading import Loaded, Loader, Refused, WantedFor
from local_log.partition_log import LogHooks, PartitionLog
from local_log.retention import Reason
from local_log.retention_pass import RetentionPass
from runtime.clock import Clock
from runtime.dice import Dice, SystemDice
from runtime.disk import Disk
from runtime.disk_errors import is_of_exhaustion
from runtime.executors import InlinePool, Pool
from runtime.scheduler import Scheduler

_log = logging.getLogger(__name__)

PRODUCER_EXPIRATION_MS = 24 * 3600 * 1000


class LogManager:
    """See the module.

    Args:
        dirs: `log.dirs`, at least one.
        config_for: settings of a topic by name, asked when its log is opened.
        scheduler: for delayed deletion; None: `run_deletions` is called by hand.
        pool: `log-io`, for flushes after a roll; None: flushed at once.
        to_loop: calls a function on the loop soon, from any thread; None: at once.
        own_names: what else lies in a log directory rightly, and is not reported as unknown.

    Attributes:
        on_offline: called on the loop with a directory that failed.
        refused: partitions whose files are here and that are not open.
    """

    def __init__(
        self,
        dirs: Sequence[Path],
        *,
        config_for: Callable[[str], LogConfig],
        disk: Disk,
        clock: Clock,
        scheduler: Scheduler | None = None,
        pool: Pool | None = None,
        dice: Dice | None = None,
        to_loop: Callable[[Callable[[], None]], object] | None = None,
        own_names: Iterable[str] = (),
    ) -> None:
        self.dirs = [LogDir(path, disk) for path in dirs]
        self._config_for = config_for
        self._disk = disk
        self._clock = clock
        self._pool = pool or InlinePool("log-io")
        self._dice = dice or SystemDice()
        self._to_loop = to_loop or (lambda call: call())
        self._own_names = OWN_NAMES | frozenset(own_names)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._by_id: dict[tuple[bytes, int], PartitionLog] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._deletion = DelayedDeletion(disk, clock, scheduler, self._pool)
        self._checkpoints = Checkpoints(self, self._fail_dir)
        self._creation = LogCreation(
            disk,
            clock,
            pool=self._pool,
            config_for=config_for,
            hooks_for=self._hooks,
            write_checkpoints=self._checkpoints.write,
            fail_dir=self._fail_dir,
        )
        self._aside: list[tuple[TopicPartition, LogDir]] = []
        self._moved: list[tuple[TopicPartition, LogDir, LogDir]] = []
        self.refused: dict[TopicPartition, Refused] = {}
        self.on_offline: Callable[[LogDir], None] = lambda _dir: None
        self.is_loaded = False
        self._is_closed = False
        self._retention = RetentionPass(
            is_open=self._is_open,
            keep_log_starts=self.keep_log_starts,
            pool=self._pool,
            to_loop=self._to_loop,
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
        for directory in self.dirs:
            if directory.path == path:
                directory.failure = reason

    def load(
        self,
        wanted: WantedFor | None = None,
        *,
        compare: bool = True,
        without_sidecars: Collection[Path] = (),
        last_broker_epoch: int | None = None,
        assigned: Mapping[bytes, Collection[TopicPartition]] | None = None,
    ) -> None:
        """Open the logs that are wanted, recovering those of directories not stopped cleanly.

        Args:
            wanted: what the metadata say of a partition of that name, None if nothing: then its
                directory is put aside by `set_aside`. Default: whatever is there is wanted.
            compare: whether sidecars are compared, see `CheckedFiles`.
            without_sidecars: log directories in which they are not.
            last_broker_epoch: see `LogDir.read_clean_mark`.
            assigned: partitions that the metadata assign to a log directory, by its id. Where its
                recovery points were lost, they stay unknown for those that are not there now.
        """
        loader = Loader(
            self.dirs,
            disk=self._disk,
            clock=self._clock,
            config_for=self._config_for,
            hooks_for=self._hooks,
            own_names=self._own_names,
            # Whatever it is: what was not opened must not be taken for missing.
            fail_dir=self._take_offline,
        )
        loaded = loader.load(
            wanted,
            compare=compare,
            without_sidecars=without_sidecars,
            last_broker_epoch=last_broker_epoch,
            assigned=assigned or {},
        )
        self._take(loaded)
        self.is_loaded = True
        # The next start reads where the metadata say then; the old entries stay until it is noted.
        moved_to = {directory for _, _, directory in self._moved}
        for directory in self.online_dirs():
            unsound = any(not directory.is_sound(name) for name in CHECKPOINTS)
            if unsound or directory in moved_to:
                self._checkpoints.write(directory, CHECKPOINTS)

    def _take(self, loaded: Loaded) -> None:
        for log, directory in loaded.opened:
            self._add(log, directory)
        self.refused = loaded.refused
        self._aside = loaded.aside
        self._moved = loaded.moved

    def set_aside(self) -> list[Path]:
        """Rename away what `load` found to be no partition of this broker; nothing is deleted.

        Called when the metadata have noted where the partitions lie.

        Returns:
            The new paths.
        """
        moved, self._moved = self._moved, []
        for tp, home, _ in moved:
            stale = home.forget([tp])
            if home.works:
                self._checkpoints.write(home, stale)
        aside, self._aside = self._aside, []
        renamed = []
        for tp, directory in aside:
            if directory.works:
                _log.error(
                    "partition is not in the metadata and is put aside: partition=%s directory=%s",
                    tp,
                    directory.path,
                )
                target = directory.path / renamed_dir(tp, self._dice.uuid(), "stray")
                if self._rename([(directory.path / partition_dir(tp), target)], directory):
                    renamed.append(target)
        return renamed

    def _hooks(self, tp: TopicPartition, directory: LogDir) -> LogHooks:
        return LogHooks(
            delete_later=self._deletion.later,
            rolled=lambda: self._flush_later(tp),
            failed=lambda error: self._take_offline(directory, error),
            before_truncation=lambda end: self._checkpoints.lower(tp, directory, end),
            log_start_moved=lambda: self._checkpoints.keep_log_starts([tp]),
        )

    def _add(self, log: PartitionLog, directory: LogDir) -> None:
        tp = log.topic_partition
        self._logs[tp] = log
        self._dir_of[tp] = directory
        if log.topic_id != ZERO_UUID:
            self._by_id[log.topic_id, log.partition] = log

    # -- logs -----------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition by name."""
        return self._logs.get(tp)

    def get_by_id(self, topic_id: bytes, partition: int) -> PartitionLog | None:
        """The log of a partition by its topic's id."""
        return self._by_id.get((topic_id, partition))

    def all(self) -> list[PartitionLog]:
        """Every log."""
        return list(self._logs.values())

    def directory_of(self, tp: TopicPartition) -> LogDir | None:
        """The log directory a partition lives in."""
        return self._dir_of.get(tp)

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

        Only for replicas that never had a record; a log that is open already is given as it is.

        Returns:
            For each partition its log, or why there is none.
        """
        made: dict[TopicPartition, PartitionLog | KafkaStorageError] = {}
        new = []
        for one in wanted:
            tp = one.topic_partition
            if tp in self._logs:
                made[tp] = self._logs[tp]
            elif tp in self.refused:
                made[tp] = KafkaStorageError(
                    f"{tp} has files here that are offline: {self.refused[tp].reason}"
                )
            else:
                new.append(one)
        counts = dict.fromkeys(self.online_dirs(), 0)
        counts |= Counter(one for one in self._dir_of.values() if one in counts)
        for tp, begun in self._creation.make(new, counts).items():
            if isinstance(begun, KafkaStorageError):
                made[tp] = begun
            else:
                self._add(*begun)
                made[tp] = begun[0]
        return made

    def delete(self, *partitions: TopicPartition) -> int:
        """Take logs away: their directories are renamed now and removed later.

        A partition that is offline for what its files say goes as well; files that say they are
        another partition are put aside and stay.

        Returns:
            How many of them there were.
        """
        gone: dict[LogDir, list[tuple[TopicPartition, Path]]] = {}
        due: dict[LogDir, dict[int, list[Path]]] = {}
        count = 0
        for tp in partitions:
            log, refused = self._logs.get(tp), self.refused.get(tp)
            foreign = () if refused is None else refused.foreign
            # The topic is gone from the metadata: its own settings are only in its logs.
            config = log.config if log else self._config_for(tp.topic)
            directories = self._let_go(tp)
            count += bool(directories)
            for directory in directories:
                if directory.works:
                    suffix = "stray" if directory in foreign else "delete"
                    target = directory.path / renamed_dir(tp, self._dice.uuid(), suffix)
                    gone.setdefault(directory, []).append((tp, target))
                    if suffix == "delete":
                        waiting = due.setdefault(directory, {})
                        waiting.setdefault(config.file_delete_delay_ms, []).append(target)
        for directory, names in gone.items():
            renames = [(directory.path / partition_dir(tp), target) for tp, target in names]
            stale = directory.forget([tp for tp, _ in names])
            written = {*CHECKPOINTS, *stale}
            if self._rename(renames, directory) and self._checkpoints.write(directory, written):
                for delay_ms, targets in due.get(directory, {}).items():
                    self._deletion.later(targets, delay_ms)
        return count

    def _let_go(self, tp: TopicPartition) -> list[LogDir]:
        """Forget a partition; the directories its files lie in."""
        log = self._logs.pop(tp, None)
        if log is None:
            refused = self.refused.pop(tp, None)
            return [] if refused is None else list(refused.directories)
        if self._by_id.get((log.topic_id, log.partition)) is log:
            del self._by_id[log.topic_id, log.partition]
        log.close(clean=False)
        return [self._dir_of.pop(tp)]

    def _rename(self, renames: Sequence[tuple[Path, Path]], directory: LogDir) -> bool:
        try:
            for source, target in renames:
                self._disk.rename(source, target)
            self._disk.fsync_path(directory.path)
        except OSError as error:
            self._fail_dir(directory, error)
            return False
        return True

    def run_deletions(self) -> None:
        """Unlink what has waited long enough, on the pool."""
        self._deletion.run()

    # -- periodic -------------------------------------------------------------------------------

    def _flush_later(self, tp: TopicPartition) -> None:
        """After a roll: what is closed is fsynced away from the loop; then its place is safe."""
        log = self._logs.get(tp)
        if log is not None:
            self._pool.submit(self._flush, log, log.segments[-1].base_offset)

    def _flush(self, log: PartitionLog, up_to: int) -> None:
        try:
            log.flush(up_to)
        except LogClosed:
            pass  # deleted meanwhile
        except KafkaStorageError as error:
            _log.error("flush failed: partition=%s error=%s", log.topic_partition, error)

    def flush_due(self) -> None:
        """Flush on the pool where `flush.ms` has passed."""
        now_ms = self._clock.wall_ms()
        for log in self._logs.values():
            if log.flush_if_due(now_ms):
                self._pool.submit(self._flush, log, log.log_end_offset)

    def run_retention(self, now_ms: int) -> list[tuple[TopicPartition, int, Reason]]:
        """Roll what is due, drop what has expired, see `retention_pass`."""
        return self._retention.run(self.all(), now_ms)

    def _is_open(self, log: PartitionLog) -> bool:
        return not self._is_closed and self._logs.get(log.topic_partition) is log

    def expire_producers(self, now_ms: int, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> int:
        """Forget producers that were silent for too long; how many."""
        return sum(log.producers.expire(now_ms, expiration_ms) for log in self._logs.values())

    # -- checkpoints ----------------------------------------------------------------------------

    def logs_in(self, directory: LogDir) -> dict[TopicPartition, PartitionLog]:
        """The open logs of a directory: a copy, since pool threads ask, too."""
        logs = self._logs.copy().items()
        return {tp: log for tp, log in logs if self._dir_of.get(tp) is directory}

    def refused_in(self, directory: LogDir) -> dict[TopicPartition, int]:
        """Partitions of a directory that are offline for what their files say.

        Returns:
            What the checkpoint is to say of the recovery point of each.
        """
        return {
            tp: refused.recovery_point
            for tp, refused in self.refused.copy().items()
            if directory in refused.directories
        }

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
        log, directory = self._logs.get(tp), self._dir_of.get(tp)
        if log is None or directory is None or not log.log_start_known:
            return True
        return log.log_start_offset <= (directory.entry(LOG_STARTS, tp) or 0)

    # -- failure and end ------------------------------------------------------------------------

    def fail(self, directory: LogDir, error: OSError) -> None:
        """Take a directory offline whose disk failed elsewhere."""
        self._take_offline(directory, error)

    def _fail_dir(self, directory: LogDir, error: OSError) -> None:
        """Take a directory offline if it is to blame; may be called on a pool thread."""
        if not is_of_exhaustion(_log, f"log directory {directory.path}", error):
            self._take_offline(directory, error)

    def _take_offline(self, directory: LogDir, error: OSError) -> None:
        if not directory.works:
            return
        directory.failure = error
        _log.error("log directory is offline: path=%s error=%s", directory.path, error)
        self._to_loop(partial(self._spread_failure, directory, error))

    def _spread_failure(self, directory: LogDir, error: OSError) -> None:
        for tp, log in self._logs.items():
            if self._dir_of[tp] is directory:
                log.set_offline(error)
        self.on_offline(directory)

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Close every log; with `clean` each working directory gets its mark last.

        A directory with a log that is offline gets none: the mark would say that this log, too, was
        closed whole.
        """
        self._is_closed = True
        for directory in self.dirs:
            logs = [log for tp, log in self._logs.items() if self._dir_of[tp] is directory]
            healthy = clean and self.is_loaded and directory.works
            # Side by side: what is dirty in thousands of logs is fsynced in common.
            closing = [self._pool.submit(log.close, clean=healthy) for log in logs]
            for closed in closing:
                try:
                    closed.result()
                except KafkaStorageError:
                    healthy = False
            if healthy and self._checkpoints.write(directory, CHECKPOINTS):
                try:
                    if not self.refused_in(directory):
                        directory.write_clean_mark(broker_epoch)
                except OSError as error:
                    _log.error("no clean stop: path=%s error=%s", directory.path, error)
            directory.unlock()
