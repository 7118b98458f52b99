"""One log directory: lock, id, checkpoints, clean-shutdown mark, and whether it works."""

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.files.meta_properties import parse_meta_properties
from kafka_protocol.types import ZERO_UUID, TopicPartition
from kafka_protocol.wire.primitives import uuid_from_text, uuid_to_text
from local_log.checked_files import SIDECAR, CheckedFiles
from runtime.disk import Disk, Lock
from runtime.executors import make_mutex
from runtime.incidents import Incident

log = logging.getLogger(__name__)

RECOVERY_POINTS = offset_checkpoint.RECOVERY_POINTS
LOG_STARTS = offset_checkpoint.LOG_STARTS
HIGH_WATERMARKS = offset_checkpoint.HIGH_WATERMARKS
CLEANER_OFFSETS = offset_checkpoint.CLEANER_OFFSETS
CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RUNNING_INCARNATION = "tidemark.running-life"
"""File with the broker incarnation that writes here, and the boot id of the machine."""
LOCK = ".lock"
META_PROPERTIES = "meta.properties"
INCARNATION_HISTORY = "tidemark-lives"
COMMITTED_METADATA = "tidemark-committed-metadata"
OWN_NAMES = frozenset(
    {
        *CHECKPOINTS,
        CLEANER_OFFSETS,
        CLEAN_SHUTDOWN,
        RUNNING_INCARNATION,
        LOCK,
        META_PROPERTIES,
        SIDECAR,
        INCARNATION_HISTORY,
        COMMITTED_METADATA,
        "bootstrap.checkpoint",
    }
)
"""Names of the files in a log directory beside partitions."""

UNKNOWN = -1
"""Recovery point of an offline partition whose checkpoint entry was lost."""


class LogDir:
    """A directory of `log.dirs`.

    Attributes:
        directory_id: 16 raw bytes from `meta.properties`, zero without that file.
        was_clean: The last shutdown was clean; set by `read_clean_mark`.
        broker_epoch: At that shutdown, -1 if unknown.
        same_boot_epoch: Broker epoch of the last incarnation, if the machine has not restarted
            since it began. A kill of the process alone loses no bytes. -1 if the machine has
            restarted, or if this is unknown.
        same_boot_incarnation: Incarnation id of that incarnation; None: unknown.
        failure: Why it is offline, None while it works.
        checkpointing: Held while a checkpoint is collected and written. The loop and pool threads
            write under one temporary name, and the newest version must be written last.
        beginnings: Entries that wait for the next writer in `future_dirs.begin_at`.
        entries: Content of each offset checkpoint on the disk. Entries of partitions that are not
            open here are kept in new versions: an offline log needs them when it comes back.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.directory_id = ZERO_UUID
        self.was_clean = False
        self.broker_epoch = self.same_boot_epoch = -1
        self.same_boot_incarnation: bytes | None = None
        self.failure: Exception | None = None
        self._failing = make_mutex()
        self.checkpointing = make_mutex()
        self.beginnings: list[Any] = []
        self.entries: dict[str, dict[TopicPartition, int]] = {}
        self._unsound: set[str] = set()
        self._stale: set[str] = set()
        self._files: CheckedFiles | None = None
        self._lock: Lock | None = None

    @property
    def works(self) -> bool:
        """True if it is not offline."""
        return self.failure is None

    def fail(self, error: Exception) -> bool:
        """Take it offline.

        False if it was already. On any thread: only one of several gets True.
        """
        with self._failing:
            if self.failure is not None:
                return False
            self.failure = error
            return True

    def prepare(self, *, compare: bool = True) -> None:
        """Create the directory if needed, read its id and its sidecar.

        Args:
            compare: See `CheckedFiles`.

        Raises:
            OSError: The disk failed.
        """
        self.disk.make_dirs(self.path)
        self._files = CheckedFiles(self.disk, self.path, compare=compare)
        try:
            meta = parse_meta_properties(self.disk.read_file(self.path / META_PROPERTIES))
        except FileNotFoundError:
            return
        if meta.directory_id is not None:
            self.directory_id = meta.directory_id
            self._files.keep(META_PROPERTIES)  # `tidemark format` writes no sidecar

    @property
    def files(self) -> CheckedFiles:
        """Its small files with their sidecar; a writer holds `checkpointing`."""
        if self._files is None:
            self._files = CheckedFiles(self.disk, self.path)
        return self._files

    def lock(self) -> None:
        """Take `.lock` until `unlock`, or the end of this object.

        Raises:
            LockHeldError: Another process uses the directory.
        """
        if self._lock is None:
            self._lock = self.disk.lock(self.path / LOCK)

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- clean shutdown -------------------------------------------------------------------------

    def read_clean_mark(self, last_broker_epoch: int | None = None) -> None:
        """Read the mark of a clean shutdown and remove it: from now on the directory is in use.

        Args:
            last_broker_epoch: Of this broker's last registration: a mark with another one is an
                old copy. None: unknown.
        """
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
            # Cut or empty: it proves nothing, so every log is recovered.
            log.warning("clean-shutdown mark is damaged, every log is recovered: %s", path)
            self.was_clean = False
        if last_broker_epoch is not None and self.broker_epoch != last_broker_epoch:
            log.warning("clean-shutdown mark is of another incarnation, ignored: %s", path)
            self.was_clean = False
        self.disk.unlink(path)
        self.disk.fsync_path(self.path)

    def read_running_incarnation(self) -> None:
        """Read which incarnation wrote here last, if the machine has not restarted since."""
        try:
            incarnation = json.loads(self.disk.read_file(self.path / RUNNING_INCARNATION))
            if incarnation["bootId"] == self.disk.boot_id() != "":
                self.same_boot_epoch = int(incarnation["brokerEpoch"])
                named = incarnation.get("incarnationId")
                self.same_boot_incarnation = None if named is None else uuid_from_text(named)
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError):
            log.warning(
                "%s is damaged: the end of the last incarnation counts as unclean", self.path
            )

    def write_running_incarnation(self, broker_epoch: int, incarnation_id: bytes) -> None:
        """Write which incarnation uses this directory from now on, or used it last.

        Raises:
            OSError: The disk failed.
        """
        incarnation = {
            "version": 0,
            "brokerEpoch": broker_epoch,
            "bootId": self.disk.boot_id(),
            "incarnationId": uuid_to_text(incarnation_id),
        }
        text = json.dumps(incarnation, separators=(",", ":"))
        self.disk.atomic_write(self.path / RUNNING_INCARNATION, text.encode())
        self.same_boot_epoch, self.same_boot_incarnation = broker_epoch, incarnation_id

    def forget_running_incarnation(self) -> None:
        """Remove that file after a failure.

        Writes before a failed fsync may be lost without a reboot.
        """
        try:
            self.disk.unlink(self.path / RUNNING_INCARNATION)
            self.disk.fsync_path(self.path)
        except OSError as error:
            log.warning("%s stays: %s", self.path / RUNNING_INCARNATION, error)

    def write_clean_mark(self, broker_epoch: int) -> None:
        """Write that everything here is flushed and closed."""
        mark = {"version": 0, "brokerEpoch": broker_epoch}
        text = json.dumps(mark, separators=(",", ":"))
        self.disk.atomic_write(self.path / CLEAN_SHUTDOWN, text.encode())

    # -- checkpoints ----------------------------------------------------------------------------

    def read_checkpoints(self) -> None:
        """Read all offset checkpoints.

        A missing or damaged one has no entries, and is not sound.

        Raises:
            OSError: The disk failed.
        """
        for name in (*CHECKPOINTS, CLEANER_OFFSETS):
            self.entries[name] = {}
            try:
                self.entries[name] = _parse(name, self.files.read(name))
            except FileNotFoundError:
                self._unsound.add(name)
                if self.files.knows(name):
                    log.error(  # noqa: TRY400
                        Incident.CHECKPOINT_LOST.line(path=self.path / name, reason="missing")
                    )
            except CorruptFileError as error:
                self._unsound.add(name)
                log.error(  # noqa: TRY400
                    Incident.CHECKPOINT_LOST.line(
                        path=self.path / name, reason=f"damaged and ignored: {error}"
                    )
                )

    def is_sound(self, name: str) -> bool:
        """True if the checkpoint has all entries that were ever written to it."""
        return name not in self._unsound

    def entry(self, name: str, tp: TopicPartition) -> int | None:
        """Return a partition's entry in a checkpoint."""
        return self.entries.get(name, {}).get(tp)

    def forget(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Drop the entries of partitions, which the next versions will not have.

        Returns:
            Names of the checkpoints whose version on the disk still has a dropped entry.
        """
        gone = set(partitions)
        with self.checkpointing:
            for name, known in self.entries.items():
                if not gone.isdisjoint(known):
                    self.entries[name] = {tp: at for tp, at in known.items() if tp not in gone}
                    self._stale.add(name)
            return sorted(self._stale)

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace one of the offset checkpoints durably."""
        self.files.write(name, offset_checkpoint.dump(offsets))
        self.entries[name] = dict(offsets)
        self._unsound.discard(name)
        self._stale.discard(name)


def _parse(name: str, data: bytes) -> dict[TopicPartition, int]:
    if not data and name == CLEANER_OFFSETS:
        raise FileNotFoundError(name)  # Kafka creates it empty: nothing was cleaned yet
    if not data:
        raise CorruptFileError("it is empty")
    return offset_checkpoint.parse(data)
