"""Creation of empty logs: all files are durable before the log is visible."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kafka_protocol.files.meta_properties import dump_partition_metadata
from kafka_protocol.files.segment_names import LOG, parse_segment_file, partition_dir
from kafka_protocol.types import TopicPartition
from local_log.checked_files import CheckedFiles, Owner
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError, LogRefused
from local_log.file_names import EPOCH_CHECKPOINT, PARTITION_METADATA
from local_log.log.empty_log import begin_empty
from local_log.log.partition_log import PartitionLog
from local_log.log.results import LogHooks
from local_log.manager.log_dir import LogDir
from local_log.recovery.survey import OpenRequest
from runtime.disk import Disk
from runtime.executors import side_by_side
from runtime.ports import Ports


class NewLog(NamedTuple):
    """A log to create.

    Attributes:
        leader_epoch: Under which this broker will lead it, if known.
    """

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig | None = None
    leader_epoch: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic name and partition number."""
        return TopicPartition(self.topic, self.partition)


Made = dict[TopicPartition, tuple[PartitionLog, LogDir] | KafkaStorageError]


class Creation(NamedTuple):
    """Logs to create.

    Attributes:
        known: Logs that are open already, and errors of those that cannot be created.
        carry_out: Creates the others; on a pool thread.
    """

    known: dict[TopicPartition, PartitionLog | KafkaStorageError]
    carry_out: Callable[[], Made]


class LogCreation:
    """Creates logs in directories; in another one if a disk fails."""

    def __init__(
        self,
        ports: Ports,
        *,
        config_for: Callable[[str], LogConfig],
        hooks_for: Callable[[TopicPartition, LogDir], LogHooks],
        write_checkpoints: Callable[[LogDir, Iterable[str]], bool],
        fail_dir: Callable[[LogDir, OSError], None],
    ) -> None:
        self._disk, self._clock = ports.disk, ports.clock
        self._pool = ports.executors.commit
        self._config_for, self._hooks_for = config_for, hooks_for
        self._write_checkpoints, self._fail_dir = write_checkpoints, fail_dir

    def make(
        self,
        wanted: Sequence[NewLog],
        counts: dict[LogDir, int],
        preferred: Mapping[TopicPartition, LogDir],
    ) -> Made:
        """Create empty logs, each in the working directory with the fewest; durable on return.

        If a directory fails before all of its logs are durable, they are created in another one.

        Args:
            wanted: None of them has files here.
            counts: Logs in each working directory; updated.
            preferred: Directories for some of them, used while they work.
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
                directory = preferred.get(new.topic_partition, online[0])
                if new.topic_partition not in preferred or not directory.works:
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
        """Create logs in a directory; if it fails, none of them counts."""
        made: Made = {}
        # First, so that a log left by a kill does not get checkpoint entries of an earlier one.
        stale = directory.forget(new.topic_partition for new in members)
        if stale and not self._write_checkpoints(directory, stale):
            return self._fail(members, "its checkpoints cannot be written")
        # First all names, then the content of files in parallel. The first fsync writes nearly all
        # of thousands of names, and the disk combines the others.
        begun: list[PartitionLog] = []
        for new in members:
            tp = new.topic_partition
            config, hooks = new.config or self._config_for(tp.topic), self._hooks_for(tp, directory)
            try:
                log = begin_log(self._disk, directory, new, config, hooks, self._clock.wall_ms())
                made[tp] = log, directory
                begun.append(log)
            except (LogRefused, KafkaStorageError) as error:
                made[tp] = KafkaStorageError(str(error))
            except OSError as error:
                self._fail_dir(directory, error)
                if not directory.works:
                    return _closed(made)
                made[tp] = KafkaStorageError(f"{tp} cannot be made now: {error}")
        calls = [partial(self._fsync, log) for log in begun]
        for log, synced in zip(begun, side_by_side(self._pool, calls), strict=True):
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

    def _fsync(self, log: PartitionLog) -> None:
        make_durable(self._disk, log.directory, with_chain=log.config.remote_storage_enable)

    @staticmethod
    def _fail(members: Sequence[NewLog], reason: str) -> Made:
        return {
            new.topic_partition: KafkaStorageError(
                f"{new.topic_partition} cannot be made now: {reason}"
            )
            for new in members
        }


def _closed(made: Made) -> Made:
    """Close logs that do not count."""
    for begun in made.values():
        if not isinstance(begun, KafkaStorageError):
            begun[0].close(clean=False)
    return made


def make_durable(disk: Disk, path: Path, *, with_chain: bool) -> None:
    """Make the files of an empty log durable; empty files by their names.

    The name of the directory is part of its log directory. Without `with_chain` the epoch chain may
    be lost: it is rebuilt from the log.

    Raises:
        OSError: The disk failed.
    """
    disk.fsync_path(path / PARTITION_METADATA)
    if with_chain:
        disk.fsync_path(path / EPOCH_CHECKPOINT)
    disk.fsync_path(path)


def log_files(disk: Disk, path: Path) -> list[str]:
    """Names of the log files in a partition directory."""
    parsed = [(name, parse_segment_file(name)) for name in disk.list_dir(path)]
    return [name for name, one in parsed if one is not None and one[1] == LOG]


def holds_records(disk: Disk, path: Path) -> bool:
    """True if a partition directory has records."""
    return any(disk.size(path / name) for name in log_files(disk, path))


def begin_log(
    disk: Disk, directory: LogDir, new: NewLog, config: LogConfig, hooks: LogHooks, now_ms: int
) -> PartitionLog:
    """Create a partition directory with its files; nothing is durable on return.

    The rest of an earlier attempt that was killed is opened like any other log, never as clean.

    Raises:
        OSError: The disk failed.
        LogRefused: The directory's content contradicts itself.
        KafkaStorageError: It has records of a deleted topic of this name, which could not be
            renamed. The next start puts it aside.
    """
    path, tp = directory.path / partition_dir(new.topic_partition), new.topic_partition
    was_there = disk.exists(path)
    owner = Owner(new.topic_id, new.partition)
    disk.make_dirs(path)
    files = CheckedFiles(disk, path, compare=was_there, owner=owner)
    request = OpenRequest(tp, path, config, now_ms, log_start=0)
    if not was_there:
        opened = begin_empty(
            disk, request, files, topic_id=new.topic_id, leader_epoch=new.leader_epoch
        )
        return PartitionLog(new.topic_id, request, opened, disk=disk, files=files, hooks=hooks)
    if holds_records(disk, path):
        raise KafkaStorageError(f"{path} holds records of a topic that is gone: restart the broker")
    files.write(PARTITION_METADATA, dump_partition_metadata(new.topic_id), durable=False)
    return PartitionLog.open(request, topic_id=new.topic_id, disk=disk, hooks=hooks, files=files)
