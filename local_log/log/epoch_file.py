"""The epoch chain of one log, and the file that keeps it.

If remote data depends on the chain, each change is written durably before it takes effect. A pool
thread writes it ahead (`write_ahead`), so that the loop only takes it.

Otherwise a change touches no file. The next flush writes the chain before the recovery point passes
a batch of a new epoch, and a start reads every batch above that point. So a kill loses only an
epoch without a record. Its loss does no harm: it covers no offset, it ends where the epoch before
it ends, and a start leads under a later one. `__remote_log_metadata` acknowledges after a flush, so
its chain is on the disk by then.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry
from local_log.config import LogConfig
from local_log.file_names import EPOCH_CHECKPOINT
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.log.health import LogHealth
from local_log.recovery.recovery import OpenedLog
from local_log.recovery.survey import OpenRequest
from local_log.small_files import SmallFiles
from runtime.disk import Disk
from runtime.executors import make_mutex


class EpochFile:
    """The epoch chain of one log, with its file.

    Args:
        opened: The log; every change of its chain is kept from now on.
        newer: Called when an epoch newer than all before has begun.

    Attributes:
        chain: In memory; always the same object.
        is_durable: Each change is on the disk before it takes effect.
        lost: Why the epochs of remote offsets are unknown; "" if they are known.
        version: Counted at each change of the chain.
        durable_version: The version that survives a power cut.
    """

    __slots__ = (
        "_ahead",
        "_config",
        "_directory",
        "_disk",
        "_epoch_seen",
        "_files",
        "_health",
        "_is_clipped",
        "_is_closed",
        "_lock",
        "_newer",
        "_written",
        "chain",
        "durable_version",
        "lost",
        "version",
    )

    def __init__(
        self,
        opened: OpenedLog,
        request: OpenRequest,
        disk: Disk,
        *,
        files: SmallFiles,
        health: LogHealth,
        newer: Callable[[], None],
    ) -> None:
        self.chain = opened.epochs
        self.chain.on_change = self._save
        self.lost = opened.chain_lost
        self.version, self.durable_version = int(opened.chain_is_dirty), 0
        self._written = self.version  # of the file
        self._directory, self._disk, self._files = request.directory, disk, files
        self._config, self._health, self._newer = request.config, health, newer
        self._is_clipped = False  # in memory only, until the log start is durable
        # Written by `write_ahead`, and not taken by the loop yet; None if nothing is.
        self._ahead: list[EpochEntry] | None = None
        self._epoch_seen = self.chain.latest_epoch
        self._is_closed = False
        self._lock = make_mutex()

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings."""
        self._config = config

    @property
    def is_durable(self) -> bool:
        """True if each change is on the disk before it takes effect."""
        return self._config.remote_storage_enable

    # -- the thread that changes the log -----------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin `epoch` at the log end, if it is a new one."""
        latest = self.chain.latest_epoch
        if latest is None or epoch > latest:
            self.chain.assign(epoch, start_offset)

    def _save(self, entries: list[EpochEntry]) -> None:
        """Save the chain after a change."""
        if self._health.failure is not None:
            self._health.refuse()  # its disk may hang
        newest = entries[-1].epoch if entries else None
        if newest != self._epoch_seen:
            if newest is not None and (self._epoch_seen is None or newest > self._epoch_seen):
                self._newer()
            self._epoch_seen = newest
        if not self.is_durable:
            self._is_clipped = False
            self.version += 1
            return
        with self._lock:
            if entries != self._ahead:
                self._write(entries, durable=True)
            self._ahead = None
            self._is_clipped = False
            self.version += 1
            self._written = self.durable_version = self.version

    def clip(self, first: int) -> None:
        """Remove epochs below `first` in memory; the log start is durable.

        Earlier, a new leader epoch would write the shorter chain, and a kill would leave offsets
        with unknown epochs. On disk the chain is clipped when segments are deleted, when it changes
        anyway, and whenever the log is opened.
        """
        if self.chain.truncate_from_start(first, keeps=False):
            self._is_clipped = True

    def forget_loss(self) -> None:
        """Clear `lost`: the missing epochs are not needed any more."""
        self.lost = ""

    def save_clipped(self) -> None:
        """Save the chain before segments are deleted, if it was clipped in memory only.

        The first deletions after a topic became tiered need a durable chain.
        """
        if self._is_clipped or self._is_behind:
            self._save(self.chain.entries())

    @property
    def _is_behind(self) -> bool:
        return self.is_durable and self.version != self.durable_version

    def restore(self, chain: Sequence[EpochEntry]) -> None:
        """Take another chain, durably, whose remote part is known to be right."""
        self.chain.replace(chain)
        self.lost = ""

    # -- pool threads ---------------------------------------------------------------------------

    def write_due(self) -> int:
        """Write the chain if its file is older, not durably.

        Returns:
            The version that the file has now.

        Raises:
            LogClosed, KafkaStorageError: From `LogHealth.fail`.
        """
        with self._lock:
            if self._is_closed:
                raise self._health.gone()
            version = self.version  # before the chain is read: it may change meanwhile
            if version != self._written:
                self._write(self.chain.entries(), durable=False)
                self._written = version
        return version

    def write_epoch_ahead(self, epoch: int, start_offset: int) -> None:
        """Write the chain that `epoch` will make, if changes must be durable.

        No append may run until the loop has assigned the epoch, and finds the file written.

        Raises:
            LogClosed, KafkaStorageError: From `LogHealth.fail`.
        """
        version = self.version
        chain = LeaderEpochCache(self.chain.entries())
        chain.assign(epoch, start_offset)
        self.write_ahead(chain.entries(), version)

    def write_clipped_ahead(self, first: int) -> None:
        """Write the chain clipped at `first`, see `PartitionLog.chain_start`, ahead of the loop.

        Raises:
            LogClosed, KafkaStorageError: From `LogHealth.fail`.
        """
        version, is_due = self.version, self._is_clipped or self._is_behind
        chain = LeaderEpochCache(self.chain.entries())
        if chain.truncate_from_start(first, keeps=False) or is_due:
            self.write_ahead(chain.entries(), version)

    def write_ahead(self, entries: list[EpochEntry], version: int) -> None:
        """Write a chain that the loop is about to take, if changes must be durable.

        Args:
            entries: All of it.
            version: Of the chain it was made of; nothing is written if the chain changed meanwhile.

        Raises:
            LogClosed, KafkaStorageError: From `LogHealth.fail`.
        """
        if self._health.failure is not None:
            self._health.refuse()
        with self._lock:
            if self._is_closed:
                raise self._health.gone()
            if version == self.version and self.is_durable:
                self._ahead = None
                self._write(entries, durable=True)
                self._ahead = entries

    def fsync(self) -> None:
        """Make the file durable, except for its name."""
        self._disk.fsync_path(self._directory / EPOCH_CHECKPOINT)

    def fsynced(self, version: int) -> None:
        """Note that file and name of a version are durable."""
        self.durable_version = max(self.durable_version, version)

    def close(self) -> None:
        """Write nothing more: the directory may have a new name, and another log the old one.

        Chain and log drop their references to each other, which would form cycles.
        """
        with self._lock:
            self._is_closed = True
        self._newer = _nothing
        self.chain.on_change = partial(_refuse, self._health)

    def _write(self, entries: list[EpochEntry], *, durable: bool) -> None:
        try:
            self._files.write(EPOCH_CHECKPOINT, epoch_checkpoint.dump(entries), durable=durable)
        except OSError as error:
            self._health.fail(error)


def _nothing() -> None:
    pass


def _refuse(health: LogHealth, _entries: list[EpochEntry]) -> NoReturn:
    """Refuse a change of the chain after its log was closed."""
    raise health.gone()
