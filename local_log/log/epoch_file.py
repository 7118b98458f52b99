"""The epoch chain of one log and the file that keeps it.

Where remote data hangs on the chain it is written at once and durably at each change, by whoever
changes it: a pool thread writes it ahead (`write_ahead`), so that the loop only takes it.

Else a change touches no file: the next flush writes the chain, before the recovery point rises over
a batch of a new epoch, and a start reads every batch above that point. So a kill loses an epoch
without a record only. Nobody misses it: it says of no offset who wrote it, it ends where the epoch
before it ends, and a start leads under a later one. Who acknowledges after a flush
(`__remote_log_metadata`) has the chain on the disk by then.
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
    """See the module.

    Args:
        opened: the log; every change of its chain is kept from now on.
        newer: called when a newer epoch than all before has begun.

    Attributes:
        chain: in memory; this object never changes.
        is_durable: each change is on the disk before it counts.
        lost: why nothing is known of the epochs of remote offsets; "" where something is known.
        version: counted at each change of the chain.
        durable_version: the version that survives a power cut.
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
        self._written = self.version  # the version that the file has
        self._directory, self._disk, self._files = request.directory, disk, files
        self._config, self._health, self._newer = request.config, health, newer
        self._is_clipped = False  # in memory only, until the log start is durable
        # What `write_ahead` has written already, before the loop takes it; None where nothing.
        self._ahead: list[EpochEntry] | None = None
        self._epoch_seen = self.chain.latest_epoch
        self._is_closed = False
        self._lock = make_mutex()

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings."""
        self._config = config

    @property
    def is_durable(self) -> bool:
        """See the module."""
        return self._config.remote_storage_enable

    # -- whoever changes the log ----------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that a batch of `epoch` is written at the log end, if the epoch is a new one."""
        latest = self.chain.latest_epoch
        if latest is None or epoch > latest:
            self.chain.assign(epoch, start_offset)

    def _save(self, entries: list[EpochEntry]) -> None:
        """Keep the chain after a change."""
        if self._health.failure is not None:
            self._health.refuse()  # its disk may not even answer
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
        """Forget the epochs below `first`; the log start is durable.

        Before that a new leader epoch would write the shorter chain, and a kill then would leave
        offsets of which nobody knows the epoch. On disk the chain is clipped when segments go or it
        changes anyway, and whenever the log is opened.
        """
        if self.chain.truncate_from_start(first, keeps=False):
            self._is_clipped = True

    def forget_loss(self) -> None:
        """What the chain does not say is not asked for any more."""
        self.lost = ""

    def save_clipped(self) -> None:
        """Keep the chain before segments go, if it was clipped in memory only.

        The first ones to go after the topic was tiered leave a chain that must be durable.
        """
        if self._is_clipped or self._is_behind:
            self._save(self.chain.entries())

    @property
    def _is_behind(self) -> bool:
        return self.is_durable and self.version != self.durable_version

    def restore(self, chain: Sequence[EpochEntry]) -> None:
        """Become another chain, durably: what it says of remote offsets is known to be right."""
        self.chain.replace(chain)
        self.lost = ""

    # -- pool threads ---------------------------------------------------------------------------

    def write_due(self) -> int:
        """Write the chain if its file is older, not durably.

        Returns:
            The version that the file has now.

        Raises:
            LogClosed, KafkaStorageError: as `LogHealth.fail`.
        """
        with self._lock:
            if self._is_closed:
                raise self._health.gone()
            version = self.version  # before the chain is looked at: it may change meanwhile
            if version != self._written:
                self._write(self.chain.entries(), durable=False)
                self._written = version
        return version

    def write_epoch_ahead(self, epoch: int, start_offset: int) -> None:
        """Write the chain as it will be once `epoch` is assigned, where it must be durable by then.

        Nobody may append until the loop has assigned it: it finds the file written then.

        Raises:
            LogClosed, KafkaStorageError: as `LogHealth.fail`.
        """
        version = self.version
        chain = LeaderEpochCache(self.chain.entries())
        chain.assign(epoch, start_offset)
        self.write_ahead(chain.entries(), version)

    def write_clipped_ahead(self, first: int) -> None:
        """Write the chain as it will be once it is clipped there, see `PartitionLog.chain_start`.

        Raises:
            LogClosed, KafkaStorageError: as `LogHealth.fail`.
        """
        version, is_due = self.version, self._is_clipped or self._is_behind
        chain = LeaderEpochCache(self.chain.entries())
        if chain.truncate_from_start(first, keeps=False) or is_due:
            self.write_ahead(chain.entries(), version)

    def write_ahead(self, entries: list[EpochEntry], version: int) -> None:
        """Write a chain that the loop is about to take, where it must be durable by then.

        Args:
            entries: all of it.
            version: `version` when it was made: a chain that was changed meanwhile stays.

        Raises:
            LogClosed, KafkaStorageError: as `LogHealth.fail`.
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
        """Make its file durable, but for its name."""
        self._disk.fsync_path(self._directory / EPOCH_CHECKPOINT)

    def fsynced(self, version: int) -> None:
        """File and name of a version are durable."""
        self.durable_version = max(self.durable_version, version)

    def close(self) -> None:
        """Write nothing more: the directory may have another name, and its name another log.

        The chain lets go of this object, and this object of the log: else they were in cycles.
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
    """What a chain does at a change once its log is closed."""
    raise health.gone()
