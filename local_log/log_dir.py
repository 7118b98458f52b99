"""One log directory: lock, id, checkpoints, clean-shutdown mark, and whether it works."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.files.meta_properties import parse_meta_properties
from kafka_protocol.types import ZERO_UUID, TopicPartition
from runtime.disk import Disk, Lock
from runtime.executors import make_mutex

_log = logging.getLogger(__name__)

RECOVERY_POINTS = offset_checkpoint.RECOVERY_POINTS
LOG_STARTS = offset_checkpoint.LOG_STARTS
HIGH_WATERMARKS = offset_checkpoint.HIGH_WATERMARKS
CLEANER_OFFSETS = offset_checkpoint.CLEANER_OFFSETS
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
META_PROPERTIES = "meta.properties"
OWN_NAMES = frozenset(
    {
        RECOVERY_POINTS,
        LOG_STARTS,
        HIGH_WATERMARKS,
        CLEANER_OFFSETS,
        CLEAN_SHUTDOWN,
        LOCK,
        META_PROPERTIES,
        "bootstrap.checkpoint",
    }
)
"""What lies in a log directory beside partitions."""


class LogDir:
    """A directory of `log.dirs`.

    Attributes:
        directory_id: 16 raw bytes from `meta.properties`, zero if that is not there.
        was_clean: the last stop was clean; known after `read_clean_mark`.
        broker_epoch: at that stop, -1 if unknown.
        failure: why it is offline, None while it works.
        checkpointing: held while a checkpoint is collected and written. The loop and `log-io` both
            write them, under one temporary name, and the older one must not come last.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.directory_id = ZERO_UUID
        self.was_clean = False
        self.broker_epoch = -1
        self.failure: OSError | None = None
        self.checkpointing = make_mutex()
        self._lock: Lock | None = None

    def prepare(self) -> None:
        """Make the directory if needed and read its id.

        Raises:
            OSError: the disk failed.
        """
        self.disk.make_dirs(self.path)
        try:
            meta = parse_meta_properties(self.disk.read_file(self.path / META_PROPERTIES))
        except FileNotFoundError:
            return
        if meta.directory_id is not None:
            self.directory_id = meta.directory_id

    def lock(self) -> None:
        """Take `.lock` for as long as this object lives.

        Raises:
            LockHeldError: another process works here.
        """
        if self._lock is None:
            self._lock = self.disk.lock(self.path / LOCK)

    def unlock(self) -> None:
        """Give the lock up."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- clean shutdown -------------------------------------------------------------------------

    def read_clean_mark(self) -> None:
        """Read the mark of a clean stop and remove it: from now on the directory is in use."""
        path = self.path / CLEAN_SHUTDOWN
        try:
            data = self.disk.read_file(path)
        except FileNotFoundError:
            return
        self.was_clean = True
        try:
            mark = json.loads(data)
            self.broker_epoch = int(mark["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            _log.warning("clean-shutdown mark without a broker epoch: %s", path)
        self.disk.unlink(path)
        self.disk.fsync_path(self.path)

    def write_clean_mark(self, broker_epoch: int) -> None:
        """Say that everything here was flushed and closed."""
        mark = {"version": 0, "brokerEpoch": broker_epoch}
        text = json.dumps(mark, separators=(",", ":"))
        self.disk.atomic_write(self.path / CLEAN_SHUTDOWN, text.encode())

    # -- checkpoints ----------------------------------------------------------------------------

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Read one of the offset checkpoints; empty if it is missing or damaged."""
        try:
            return offset_checkpoint.parse(self.disk.read_file(self.path / name))
        except FileNotFoundError:
            return {}
        except CorruptFileError as error:
            _log.error("checkpoint is damaged and ignored: %s reason=%s", self.path / name, error)
            return {}

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace one of the offset checkpoints durably."""
        self.disk.atomic_write(self.path / name, offset_checkpoint.dump(offsets))
