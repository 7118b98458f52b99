"""Beginning an empty log: all of its files are durable before anybody hears of it."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from kafka_protocol.files.meta_properties import dump_partition_metadata
from kafka_protocol.files.segment_names import partition_dir
from kafka_protocol.types import TopicPartition
from local_log.checked_files import CheckedFiles, Owner
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError, LogRefused
from local_log.log_dir import LogDir
from local_log.partition_log import LogHooks, PartitionLog
from local_log.segment_files import PARTITION_METADATA
from runtime.clock import Clock
from runtime.disk import Disk
from runtime.executors import Pool


class NewLog(NamedTuple):
    """A log to be begun."""

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Name and number."""
        return TopicPartition(self.topic, self.partition)


Made = dict[TopicPartition, tuple[PartitionLog, LogDir] | KafkaStorageError]


class LogCreation:
    """Begins logs in directories, in another one where a disk fails."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        *,
        pool: Pool,
        config_for: Callable[[str], LogConfig],
        hooks_for: Callable[[TopicPartition, LogDir], LogHooks],
        write_checkpoints: Callable[[LogDir, Iterable[str]], bool],
        fail_dir: Callable[[LogDir, OSError], None],
    ) -> None:
        self._disk, self._clock, self._pool = disk, clock, pool
        self._config_for, self._hooks_for = config_for, hooks_for
        self._write_checkpoints, self._fail_dir = write_checkpoints, fail_dir

    def make(self, wanted: Sequence[NewLog], counts: dict[LogDir, int]) -> Made:
        """Begin empty logs, each in the working directory with the fewest; durable on return.

        What was begun in a directory that fails before all is durable is begun in another.

        Args:
            wanted: none of them has files here.
            counts: logs in each working directory; changed.
        """
        made: Made = {}
        left = list(wanted)
        while left:
            placed: dict[LogDir, list[NewLog]] = {}
            online = [directory for directory in counts if directory.works]
            for new in left:
                if not online:
                    made[new.topic_partition] = KafkaStorageError("every log directory is offline")
                    continue
                directory = min(online, key=lambda one: counts[one])
                counts[directory] += 1
                placed.setdefault(directory, []).append(new)
            left = []
            for directory, members in placed.items():
                begun = self._make_in(directory, members)
                if directory.works:
                    made |= begun
                else:
                    left += members
        return made

    def _make_in(self, directory: LogDir, members: Sequence[NewLog]) -> Made:
        """Begin logs in a directory; if it does not work afterwards, none of them counts."""
        made: Made = {}
        # First: a log that a kill leaves here must not meet what was known of one before it.
        stale = directory.forget(new.topic_partition for new in members)
        if stale and not self._write_checkpoints(directory, stale):
            return self._fail(members, "its checkpoints cannot be written")
        # Side by side: what thousands of new logs have to fsync the disk takes in common.
        syncing: list[tuple[PartitionLog, Future[None]]] = []
        for new in members:
            tp = new.topic_partition
            config, hooks = new.config or self._config_for(tp.topic), self._hooks_for(tp, directory)
            try:
                log = begin_log(self._disk, directory, new, config, hooks, self._clock.wall_ms())
                made[tp] = log, directory
                syncing.append((log, self._pool.submit(self._fsync_all, log.directory)))
            except LogRefused as error:
                made[tp] = KafkaStorageError(str(error))
            except OSError as error:
                self._fail_dir(directory, error)
                if not directory.works:
                    break
                made[tp] = KafkaStorageError(f"{tp} cannot be made now: {error}")
        for log, synced in syncing:
            try:
                synced.result()
            except OSError as error:
                self._fail_dir(directory, error)
                log.close(clean=False)
                tp = log.topic_partition
                made[tp] = KafkaStorageError(f"{tp} cannot be made now: {error}")
        if not directory.works:
            return _closed(made)
        try:
            self._disk.fsync_path(directory.path)
        except OSError as error:
            self._fail_dir(directory, error)
            _closed(made)
            return self._fail(members, str(error))
        return made

    def _fsync_all(self, path: Path) -> None:
        for name in self._disk.list_dir(path):
            self._disk.fsync_path(path / name)
        self._disk.fsync_path(path)

    @staticmethod
    def _fail(members: Sequence[NewLog], reason: str) -> Made:
        return {
            new.topic_partition: KafkaStorageError(
                f"{new.topic_partition} cannot be made now: {reason}"
            )
            for new in members
        }


def _closed(made: Made) -> Made:
    """Let go of the files of logs that do not count."""
    for begun in made.values():
        if not isinstance(begun, KafkaStorageError):
            begun[0].close(clean=False)
    return made


def begin_log(
    disk: Disk, directory: LogDir, new: NewLog, config: LogConfig, hooks: LogHooks, now_ms: int
) -> PartitionLog:
    """Make a partition directory with its files; nothing of it is durable on return.

    What a kill left of an earlier try is opened as anything found would be, never as clean.

    Raises:
        OSError: the disk failed.
        LogRefused: there is something in the directory already.
    """
    path = directory.path / partition_dir(new.topic_partition)
    disk.make_dirs(path)
    files = CheckedFiles(disk, path, owner=Owner(new.topic_id, new.partition))
    files.write(PARTITION_METADATA, dump_partition_metadata(new.topic_id), durable=False)
    return PartitionLog.open(
        path,
        topic_partition=new.topic_partition,
        topic_id=new.topic_id,
        config=config,
        disk=disk,
        now_ms=now_ms,
        recovery_point=0,
        log_start=0,
        hooks=hooks,
        files=files,
    )
