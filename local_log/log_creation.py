"""Beginning an empty log: all of its files are durable before anybody hears of it."""

from typing import NamedTuple

from kafka_protocol.files.meta_properties import dump_partition_metadata
from kafka_protocol.files.segment_names import partition_dir
from kafka_protocol.types import TopicPartition
from local_log.checked_files import CheckedFiles, Owner
from local_log.config import LogConfig
from local_log.log_dir import LogDir
from local_log.partition_log import LogHooks, PartitionLog
from local_log.segment_files import PARTITION_METADATA
from runtime.disk import Disk


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


def begin_log(
    disk: Disk, directory: LogDir, new: NewLog, config: LogConfig, hooks: LogHooks, now_ms: int
) -> PartitionLog:
    """Make a partition directory with its files; only the name of it is not durable on return.

    What a kill left of an earlier try is opened as anything found would be, never as clean.

    Raises:
        OSError: the disk failed.
        LogRefused: there is something in the directory already.
    """
    path = directory.path / partition_dir(new.topic_partition)
    disk.make_dirs(path)
    files = CheckedFiles(disk, path, owner=Owner(new.topic_id, new.partition))
    files.write(PARTITION_METADATA, dump_partition_metadata(new.topic_id), durable=False)
    log = PartitionLog.open(
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
    for name in disk.list_dir(path):
        disk.fsync_path(path / name)
    disk.fsync_path(path)
    return log
