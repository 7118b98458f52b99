"""All logs of a broker: opens them at start, spreads new ones, keeps checkpoints, deletes, closes.

Owned by the event loop's thread; flushes, checkpoints and deletions run on `log-io`. A directory
whose disk fails goes offline with all its logs (error 56) while the others serve on; a restart
recovers it.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.meta_properties import dump_partition_metadata, parse_partition_metadata
from kafka_protocol.files.segment_names import (
    parse_partition_dir,
    parse_renamed_dir,
    partition_dir,
    renamed_dir,
)
from kafka_protocol.types import ZERO_UUID, TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError, LogClosed, LogRefused
from local_log.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    OWN_NAMES,
    RECOVERY_POINTS,
    LogDir,
)
from local_log.partition_log import Expiry, LogHooks, PartitionLog
from local_log.retention import Reason
from local_log.segment_files import PARTITION_METADATA
from runtime.clock import Clock
from runtime.dice import Dice, SystemDice
from runtime.disk import Disk
from runtime.executors import InlinePool, Pool
from runtime.scheduler import Scheduler

_log = logging.getLogger(__name__)

METADATA_TOPIC = "__cluster_metadata"
_REMOVE_DELAY_MS = 60_000
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
        refused: logs that contradict what is known of them: left as they are, not served.
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
        self._scheduler = scheduler
        self._pool = pool or InlinePool("log-io")
        self._dice = dice or SystemDice()
        self._to_loop = to_loop or (lambda call: call())
        self._own_names = OWN_NAMES | frozenset(own_names)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._by_id: dict[tuple[bytes, int], PartitionLog] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._deletions: list[tuple[int, list[Path]]] = []
        self._starts_listed: dict[LogDir, frozenset[TopicPartition]] = {}
        self.on_offline: Callable[[LogDir], None] = lambda _dir: None
        self.refused: dict[TopicPartition, LogRefused] = {}
        self.is_loaded = False

    # -- start ----------------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the `.lock` of each directory.

        Raises:
            LockHeldError: another process works in one of them.
        """
        for directory in self.dirs:
            directory.prepare()
            directory.lock()

    def load(self) -> None:
        """Open every partition directory, recovering those of directories not stopped cleanly."""
        for directory in self.dirs:
            try:
                directory.prepare()
                self._load_dir(directory)
            except OSError as error:
                self._fail_dir(directory, error)
        self.is_loaded = True

    def _load_dir(self, directory: LogDir) -> None:
        directory.read_clean_mark()
        recovery_points = directory.read_checkpoint(RECOVERY_POINTS)
        log_starts = directory.read_checkpoint(LOG_STARTS)
        high_watermarks = directory.read_checkpoint(HIGH_WATERMARKS)
        cleaned = directory.read_checkpoint(CLEANER_OFFSETS)
        self._starts_listed[directory] = frozenset(log_starts)
        announce = not directory.was_clean
        for name in self._disk.list_dir(directory.path):
            path = directory.path / name
            if name.removesuffix(".tmp") in self._own_names:
                continue  # a kill may leave a temporary file; the next write takes its name
            if not self._disk.is_dir(path):
                _log.info("unknown file is left alone: %s", path)
                continue
            renamed = parse_renamed_dir(name)
            if renamed is not None:
                if renamed[1] == "delete":
                    self._disk.remove_tree(path)
                continue
            tp = parse_partition_dir(name)
            if tp is None or partition_dir(tp) != name:
                _log.info("unknown directory is left alone: %s", path)
                continue
            if tp.topic == METADATA_TOPIC:
                continue
            if tp in self._logs:
                _log.error("partition is in two log directories, left alone: %s", path)
                continue
            if announce:
                _log.info("recovering after an unclean stop: path=%s", directory.path)
                announce = False
            try:
                log = PartitionLog.open(
                    path,
                    topic_partition=tp,
                    topic_id=self._topic_id(path),
                    config=self._config_for(tp.topic),
                    disk=self._disk,
                    now_ms=self._clock.wall_ms(),
                    recovery_point=recovery_points.get(tp, 0),
                    log_start=log_starts.get(tp),
                    high_watermark=high_watermarks.get(tp, 0),
                    is_clean=directory.was_clean,
                    was_compacted=tp in cleaned,
                    hooks=self._hooks(tp, directory),
                )
            except LogRefused as refused:
                _log.error("log is refused, partition is offline: path=%s %s", path, refused)
                self.refused[tp] = refused
                continue
            if log.truncated_bytes:
                _log.warning(
                    "recovered: partition=%s end=%d cut_bytes=%d",
                    tp,
                    log.log_end_offset,
                    log.truncated_bytes,
                )
            self._add(log, directory)

    def _topic_id(self, path: Path) -> bytes:
        try:
            return parse_partition_metadata(self._disk.read_file(path / PARTITION_METADATA))
        except (FileNotFoundError, CorruptFileError) as error:
            _log.warning("partition without a topic id: path=%s reason=%s", path, error)
            return ZERO_UUID

    def _hooks(self, tp: TopicPartition, directory: LogDir) -> LogHooks:
        return LogHooks(
            delete_later=self._delete_later,
            rolled=lambda: self._flush_later(tp),
            failed=lambda error: self._fail_dir(directory, error),
            before_truncation=lambda end: self._lower_marks(directory, tp, end),
        )

    def _lower_marks(self, directory: LogDir, tp: TopicPartition, end_offset: int) -> None:
        """Say durably that a log reaches no further than `end_offset`; other entries stay."""
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            with directory.checkpointing:
                offsets = directory.read_checkpoint(name)
                if offsets.get(tp, 0) > end_offset:
                    offsets[tp] = end_offset
                    directory.write_checkpoint(name, offsets)

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
        return [directory for directory in self.dirs if directory.failure is None]

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the last stop if it was clean in every directory, else -1."""
        epochs = {directory.broker_epoch for directory in self.dirs}
        return epochs.pop() if len(epochs) == 1 else -1

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig | None = None,
        *,
        is_new: bool = True,
    ) -> PartitionLog:
        """Begin an empty log in the working directory that holds the fewest; fine if it exists.

        Args:
            topic: of the partition.
            partition: its number.
            topic_id: 16 raw bytes, kept in `partition.metadata`.
            config: default: what `config_for` says.
            is_new: False for a partition that had records perhaps. While a directory is offline its
                log may lie there, and must not begin anew elsewhere.

        Raises:
            KafkaStorageError: no directory works, or this one failed just now.
        """
        tp = TopicPartition(topic, partition)
        known = self._logs.get(tp)
        if known is not None:
            return known
        online = self.online_dirs()
        if not online:
            raise KafkaStorageError("every log directory is offline")
        if not is_new and len(online) < len(self.dirs):
            raise KafkaStorageError(f"the log of {tp} may be in a directory that is offline")
        counts = {id(directory): 0 for directory in online}
        for used in self._dir_of.values():
            if id(used) in counts:
                counts[id(used)] += 1
        directory = min(online, key=lambda candidate: counts[id(candidate)])
        path = directory.path / partition_dir(tp)
        try:
            self._disk.make_dirs(path)
            self._disk.atomic_write(path / PARTITION_METADATA, dump_partition_metadata(topic_id))
            log = PartitionLog.open(
                path,
                topic_partition=tp,
                topic_id=topic_id,
                config=config or self._config_for(tp.topic),
                disk=self._disk,
                now_ms=self._clock.wall_ms(),
                log_start=0,
                is_clean=True,
                hooks=self._hooks(tp, directory),
            )
            self._disk.fsync_path(directory.path)
        except OSError as error:
            self._fail_dir(directory, error)
            raise KafkaStorageError(f"{directory.path} is offline: {error}") from error
        self._add(log, directory)
        return log

    def delete(self, tp: TopicPartition) -> bool:
        """Take a log away: its directory is renamed now and removed later.

        Returns:
            False if there is no such log.
        """
        return self._rename_away(tp, "delete")

    def make_stray(self, tp: TopicPartition) -> bool:
        """Put the log of a partition nobody knows aside; its files stay for an operator."""
        return self._rename_away(tp, "stray")

    def strays(self, known: Callable[[PartitionLog], bool]) -> list[PartitionLog]:
        """Logs of which `known` says that the metadata has no such partition here."""
        return [log for log in self._logs.values() if not known(log)]

    def _rename_away(self, tp: TopicPartition, suffix: str) -> bool:
        log = self._logs.pop(tp, None)
        if log is None:
            return False
        directory = self._dir_of.pop(tp)
        if self._by_id.get((log.topic_id, log.partition)) is log:
            del self._by_id[log.topic_id, log.partition]
        log.close(clean=False)
        target = directory.path / renamed_dir(tp, self._dice.uuid(), suffix)
        try:
            self._disk.rename(log.directory, target, durable=True)
            for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
                self._checkpoint(directory, name)
        except OSError as error:
            self._fail_dir(directory, error)
            return True
        if suffix == "delete":
            self._delete_later([target], log.config.file_delete_delay_ms)
        return True

    # -- deletion -------------------------------------------------------------------------------

    def _delete_later(self, paths: list[Path], delay_ms: int) -> None:
        if not paths:
            return
        self._deletions.append((self._clock.monotonic_ms() + delay_ms, paths))
        if self._scheduler is not None:
            self._scheduler.call_later(delay_ms + 1, self.run_deletions)

    def run_deletions(self) -> None:
        """Unlink what has waited long enough, on the pool."""
        now_ms = self._clock.monotonic_ms()
        due = [paths for due_ms, paths in self._deletions if due_ms <= now_ms]
        self._deletions = [entry for entry in self._deletions if entry[0] > now_ms]
        for paths in due:
            self._pool.submit(self._unlink, paths)

    def _unlink(self, paths: Iterable[Path]) -> None:
        for path in paths:
            try:
                if self._disk.is_dir(path):
                    self._disk.remove_tree(path)
                else:
                    self._disk.unlink(path)
            except OSError as error:
                _log.warning("could not remove a deleted file: path=%s error=%s", path, error)

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
        """One pass over all logs: roll what is due, drop what has expired.

        Returns:
            (partition, base offset, reason) of each dropped segment.
        """
        dropped: list[tuple[TopicPartition, int, Reason]] = []
        self._list_tiered_starts()
        expired: list[tuple[PartitionLog, Expiry]] = []
        for log in list(self._logs.values()):
            try:
                log.roll_if_due(now_ms)
                expiry = log.expire(now_ms)
                if expiry is not None and expiry.dropped:
                    log.flush(expiry.log_start_offset)
                    expired.append((log, expiry))
            except KafkaStorageError as error:
                _log.error("retention failed: partition=%s error=%s", log.topic_partition, error)
        if expired:
            self._checkpoint_all(LOG_STARTS)
        for log, expiry in expired:
            try:
                for base_offset, reason in log.drop(expiry).dropped:
                    dropped.append((log.topic_partition, base_offset, reason))
            except KafkaStorageError as error:
                _log.error("retention failed: partition=%s error=%s", log.topic_partition, error)
        return dropped

    def _list_tiered_starts(self) -> None:
        """Write the log starts of tiered logs that the checkpoint does not hold yet.

        A new log starts where its first segment does, and retention is about to drop that one: a
        kill after that must still find the start. Otherwise clients would be told that what is
        remote is gone.
        """
        for directory in self.online_dirs():
            listed = self._starts_listed.get(directory, frozenset())
            if any(
                log.config.remote_storage_enable and log.log_start_known and tp not in listed
                for tp, log in self._logs.items()
                if self._dir_of[tp] is directory
            ):
                try:
                    self._checkpoint(directory, LOG_STARTS)
                except OSError as error:
                    self._fail_dir(directory, error)

    def expire_producers(self, now_ms: int, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> int:
        """Forget producers that were silent for too long; how many."""
        return sum(log.producers.expire(now_ms, expiration_ms) for log in self._logs.values())

    def checkpoint_recovery_points(self) -> None:
        """Write how far each log was flushed."""
        self._checkpoint_all(RECOVERY_POINTS)

    def checkpoint_log_starts(self) -> None:
        """Write the log starts; returns when they survive a power cut.

        Raises:
            KafkaStorageError: a directory failed: what it should have kept is not kept.
        """
        if not self._checkpoint_all(LOG_STARTS):
            raise KafkaStorageError("the log starts of a directory could not be written")

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks."""
        self._checkpoint_all(HIGH_WATERMARKS)

    def _checkpoint_all(self, name: str) -> bool:
        """Write one checkpoint of each working directory; whether all of them were written."""
        written = True
        for directory in self.online_dirs():
            try:
                self._checkpoint(directory, name)
            except OSError as error:
                written = False
                self._fail_dir(directory, error)
        return written

    def _checkpoint(self, directory: LogDir, name: str) -> None:
        """Collect and write one checkpoint; the loop and `log-io` both come here."""
        with directory.checkpointing:
            offsets = self._collect(directory, name)
            directory.write_checkpoint(name, offsets)
            if name == LOG_STARTS:
                self._starts_listed[directory] = frozenset(offsets)

    def _collect(self, directory: LogDir, name: str) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        for tp, log in self._logs.copy().items():  # the loop may add a log meanwhile
            if self._dir_of.get(tp) is not directory:
                continue
            if name == RECOVERY_POINTS:
                offsets[tp] = log.recovery_point
            elif name == HIGH_WATERMARKS:
                offsets[tp] = log.high_watermark
            # Like Kafka: a log start that the first segment's name already tells is left out,
            # except for tiered logs, whose start may lie below every local segment.
            elif log.log_start_known and (
                log.config.remote_storage_enable or log.log_start_offset > log.first_base_offset
            ):
                offsets[tp] = log.log_start_offset
        return offsets

    # -- failure and end ------------------------------------------------------------------------

    def _fail_dir(self, directory: LogDir, error: OSError) -> None:
        """Take a directory offline; may be called on a pool thread."""
        if directory.failure is not None:
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
        """Close every log; with `clean` each working directory gets its mark last."""
        for directory in self.dirs:
            logs = [log for tp, log in self._logs.items() if self._dir_of[tp] is directory]
            healthy = clean and self.is_loaded and directory.failure is None
            # Side by side: what is dirty in thousands of logs is fsynced in common.
            closing = [self._pool.submit(log.close, clean=healthy) for log in logs]
            for closed in closing:
                try:
                    closed.result()
                except KafkaStorageError:
                    healthy = False
            if healthy:
                try:
                    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
                        self._checkpoint(directory, name)
                    directory.write_clean_mark(broker_epoch)
                except OSError as error:
                    _log.error("no clean stop: path=%s error=%s", directory.path, error)
            directory.unlock()
