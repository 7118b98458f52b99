"""The state of one log: what it consists of, where it begins and ends, whether its disk works."""

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn
from zlib import crc32

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry, TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError, LogClosed
from local_log.log_results import LogHooks
from local_log.recovery import OpenedLog
from local_log.segment import LogSegment
from local_log.segment_files import EPOCH_CHECKPOINT
from local_log.small_files import SmallFiles
from runtime.disk import Disk
from runtime.disk_errors import is_of_exhaustion
from runtime.executors import make_mutex

_log = logging.getLogger(__name__)


def _delete_now(disk: Disk) -> Callable[[list[Path], int], None]:
    def delete(paths: list[Path], _delay_ms: int) -> None:
        for path in paths:
            disk.unlink(path)

    return delete


class LogState:
    """What is true of one log now; see `partition_log` for the rules."""

    __slots__ = (
        "_active",
        "_bases",
        "_chain_is_clipped",
        "_changes",
        "_closed",
        "_delete_later",
        "_disk",
        "_epoch_seen",
        "_epochs_flushed",
        "_epochs_version",
        "_failure",
        "_files",
        "_high_watermark",
        "_hooks",
        "_jitter_ms",
        "_less_recent",
        "_marks",
        "_recent",
        "_segments",
        "_truncations",
        "_unflushed_since_ms",
        "chain_lost",
        "config",
        "copied_through",
        "directory",
        "epochs",
        "has_damage",
        "log_end_offset",
        "log_start_has_no_entry",
        "log_start_known",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "size_bytes",
        "snapshots",
        "topic",
        "topic_id",
        "truncated_bytes",
    )

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: bytes,
        directory: Path,
        config: LogConfig,
        disk: Disk,
        files: SmallFiles,
        opened: OpenedLog,
        recovery_point: int,
        high_watermark: int,
        hooks: LogHooks,
    ) -> None:
        self.topic, self.partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.config = config
        self._disk = disk
        self._files = files
        self._hooks = hooks
        self._delete_later = hooks.delete_later or _delete_now(disk)
        self._segments = opened.segments
        self._bases = [segment.base_offset for segment in opened.segments]
        self._active = opened.segments[-1]
        self.size_bytes = sum(segment.size_bytes for segment in opened.segments)
        self.producers = opened.producers
        self.snapshots = opened.snapshots
        self.epochs = opened.epochs
        self.epochs.on_change = self._save_epochs
        # The chain's file is written at each change, and fsynced where these two differ.
        self._epochs_version = 1 if opened.chain_is_dirty else 0
        self._epochs_flushed = 0
        self._chain_is_clipped = False  # in memory only, until the log start is durable
        # Why nothing is known of the epochs of remote offsets; "" where something is known.
        self.chain_lost = opened.chain_lost
        self._epoch_seen = opened.epochs.latest_epoch
        self.log_start_offset = opened.log_start_offset
        self.log_start_known = opened.log_start_known
        # Unknown, and the checkpoint is sound: it never had an entry for this log.
        self.log_start_has_no_entry = False
        self.log_end_offset = opened.log_end_offset
        self.truncated_bytes = opened.truncated_bytes
        self.recovery_point = min(recovery_point, opened.log_end_offset)
        # A damaged batch was met below it: the next start must read the log whole, and judge.
        self.has_damage = False
        self._high_watermark = min(high_watermark, opened.log_end_offset)
        self.copied_through = -1
        self._failure: OSError | None = None
        # Base offset -> (position, size) of the newest batches, in two generations: consumers at
        # the end of the log are served from here, without a look at index or file.
        self._recent: dict[int, tuple[int, int]] = {}
        self._less_recent: dict[int, tuple[int, int]] = {}
        # Counted when segments have left the lists, before their files change names, and at each
        # truncation: pool threads that worked on a copy see that they must look again.
        self._changes = 0
        # Counted, under `_marks`, before a truncation changes anything: a flush that has run beside
        # it does not know what it has flushed.
        self._truncations = 0
        self._marks = make_mutex()
        self._closed = False
        self._unflushed_since_ms: int | None = None
        self._jitter_ms = 0
        self._set_jitter()
        self._high_watermark = max(self._high_watermark, self.local_log_start_offset)
        self.producers.raise_high_watermark(self._high_watermark)

    @property
    def topic_partition(self) -> TopicPartition:
        """Name and number."""
        return TopicPartition(self.topic, self.partition)

    @property
    def disk(self) -> Disk:
        """The port its files are reached by."""
        return self._disk

    @property
    def segments(self) -> Sequence[LogSegment]:
        """All segments, oldest first, the last one active."""
        return self._segments

    @property
    def segment_count(self) -> int:
        """How many segments are local."""
        return len(self._segments)

    @property
    def local_log_start_offset(self) -> int:
        """First offset that is readable here: the first segment's, or the log start inside it."""
        base = self._bases[0]
        return max(self.log_start_offset, base)

    @property
    def first_base_offset(self) -> int:
        """Where the first local segment begins, perhaps below the log start."""
        return self._bases[0]

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch of the chain."""
        return self.epochs.latest_epoch

    @property
    def high_watermark(self) -> int:
        """First offset that is not committed."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        assert offset <= self.log_end_offset, "the high watermark is at most the log end"
        self._high_watermark = offset
        self.producers.raise_high_watermark(offset)

    @property
    def last_stable_offset(self) -> int:
        """First offset that a read_committed consumer may not see yet."""
        unstable = self.producers.first_unstable_offset()
        high_watermark = self._high_watermark
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    @property
    def is_offline(self) -> bool:
        """Whether its disk failed."""
        return self._failure is not None

    def set_config(self, config: LogConfig) -> None:
        """Replace the settings; index sizes hold from the next segment on."""
        self.config = config
        for segment in self._segments:
            segment.index_interval_bytes = config.index_interval_bytes
        self._set_jitter()

    def _forget_recent(self) -> None:
        """Positions of recent batches belong to the active segment as it was."""
        self._recent = {}
        self._less_recent = {}

    def _set_jitter(self) -> None:
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        seed = f"{self.topic}-{self.partition}-{self._active.base_offset}".encode()
        self._jitter_ms = crc32(seed) % limit if limit > 0 else 0

    def fail(self, error: OSError) -> NoReturn:
        """Take no more appends: what the disk holds is unknown until a restart has recovered it.

        Where the process has no descriptors or memory left, only this question fails: the
        caller has left files and facts as they were. May be called on a pool thread. A log that was
        closed has not failed: its files are gone because its partition is.

        Raises:
            LogClosed: the log was closed.
            KafkaStorageError: in every other case.
        """
        if self._closed:
            raise LogClosed(f"{self.topic_partition} is gone") from error
        if self._failure is None and is_of_exhaustion(_log, f"log {self.directory}", error):
            raise KafkaStorageError(f"{self.directory} cannot be used now: {error}") from error
        if self._failure is None:
            self._failure = error
            _log.error("disk failed, partition is offline: path=%s error=%s", self.directory, error)
            self._hooks.failed(error)
        self._refuse()

    def set_offline(self, error: OSError) -> None:
        """Go offline because another partition's disk access on the same directory failed."""
        self._failure = self._failure or error

    def _refuse(self) -> NoReturn:
        raise KafkaStorageError(f"{self.directory} is offline: {self._failure}") from self._failure

    def _save_epochs(self, entries: list[EpochEntry]) -> None:
        """Keep the chain after a change.

        Where remote data hangs on it, at once and durably; else the log itself can tell it again
        for every offset above the recovery point, so fsync waits for the next flush.
        """
        newest = entries[-1].epoch if entries else None
        if newest != self._epoch_seen:
            if newest is not None and (self._epoch_seen is None or newest > self._epoch_seen):
                self.copied_through = -1  # known under an older epoch: the tier says it anew
            self._epoch_seen = newest
        durable = self.config.remote_storage_enable
        try:
            self._files.write(EPOCH_CHECKPOINT, epoch_checkpoint.dump(entries), durable=durable)
        except OSError as error:
            self.fail(error)
        self._chain_is_clipped = False
        self._epochs_version += 1
        if durable:
            self._epochs_flushed = self._epochs_version

    def _segment_end(self, segment: LogSegment) -> int:
        """The next segment's base offset, or the log end (exclusive)."""
        if segment is self._active:
            return self.log_end_offset
        return self._bases[bisect_right(self._bases, segment.base_offset)]
