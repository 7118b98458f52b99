"""Keeps the offset checkpoints of the log directories.

Written by the loop and by pool threads, one at a time for each directory. A checkpoint that is
written again keeps the entries of partitions that are not open: an offline log needs them when it
comes back.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError, LogClosed
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    UNKNOWN,
    LogDir,
)

NOTHING: Final[Mapping[TopicPartition, int]] = {}


class Hosted(Protocol):
    """What the log manager knows; asked from any thread."""

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """An open log."""

    @property
    def being_replaced(self) -> Container[TopicPartition]:
        """Partitions whose log is closed while another takes its place."""

    def checkpointed_in(self, directory: LogDir) -> dict[TopicPartition, PartitionLog]:
        """The open logs of a directory, but for those that are being replaced (a copy)."""

    def refused_in(self, directory: LogDir) -> dict[TopicPartition, int]:
        """Partitions there that are offline for what their files say, and their recovery points."""

    def directory_of(self, tp: TopicPartition) -> LogDir | None:
        """Where an open log lies."""


def collect(
    name: str,
    logs: Mapping[TopicPartition, PartitionLog],
    before: Mapping[TopicPartition, int],
    refused: Mapping[TopicPartition, int] = NOTHING,
) -> dict[TopicPartition, int]:
    """Make the next content of a checkpoint.

    Args:
        name: which checkpoint.
        logs: the open logs of the directory.
        before: what it said until now.
        refused: recovery points of offline partitions, UNKNOWN where it was lost: that is said, or
            the next start would take it for 0 and cut what it likes.
    """
    if name == CLEANER_OFFSETS:
        return dict(before)  # the cleaner's own word; only deleted partitions leave it
    offsets = {tp: offset for tp, offset in before.items() if tp not in logs}
    for tp, log in logs.items():
        if name == RECOVERY_POINTS:
            offsets[tp] = UNKNOWN if log.has_damage else log.recovery_point
        elif name == HIGH_WATERMARKS:
            offsets[tp] = log.high_watermark
        elif log.log_start_known and (log.config.remote_storage_enable or log.log_start_offset > 0):
            # A plain log that begins at 0 is excluded, as in Kafka.
            offsets[tp] = log.log_start_offset
    if name == RECOVERY_POINTS:
        for tp, point in refused.items():
            offsets[tp] = max(point, offsets.get(tp, UNKNOWN))
    return offsets


class Checkpoints:
    """Writes them."""

    def __init__(self, hosted: Hosted, fail_dir: Callable[[LogDir, OSError], None]) -> None:
        self._hosted = hosted
        self._fail_dir = fail_dir

    def write(self, directory: LogDir, names: Iterable[str]) -> bool:
        """Write checkpoints of a directory; on return they survive a power cut.

        Returns:
            False if the disk failed, which takes the directory offline.
        """
        try:
            for name in names:
                self._write(directory, name)
        except OSError as error:
            self._fail_dir(directory, error)  # or says that it cannot be used for now
            return False
        except KafkaStorageError:
            return False  # a log could not be flushed
        return directory.works

    def _write(self, directory: LogDir, name: str) -> None:
        with directory.checkpointing:
            logs = self._hosted.checkpointed_in(directory)
            before = directory.entries.get(name, {})
            refused = self._hosted.refused_in(directory)
            # Log starts may rise while others are flushed: what is written is what was flushed to.
            offsets = collect(name, logs, before, refused)
            if name == LOG_STARTS:
                # A log that ends below its start has lost something: that must not be our doing.
                for tp, log in logs.items():
                    if offsets.get(tp, 0) > log.recovery_point:
                        with suppress(LogClosed):  # deleted meanwhile, and soon forgotten
                            log.flush(offsets[tp])
            directory.write_checkpoint(name, offsets)

    def keep_log_starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaStorageError]:
        """Make the log starts of these partitions survive a power cut.

        And their recovery points, where none is known: of a log that does not begin at 0 a start
        could not tell what a power cut took from damage.

        Returns:
            Those whose log start is not kept, and why.
        """
        failed: dict[TopicPartition, KafkaStorageError] = {}
        by_directory: dict[LogDir, list[TopicPartition]] = {}
        for tp in partitions:
            directory = self._hosted.directory_of(tp)
            if directory is None or tp in self._hosted.being_replaced:
                failed[tp] = KafkaStorageError(f"the log of {tp} is not here any more")
            else:
                by_directory.setdefault(directory, []).append(tp)
        for directory, members in by_directory.items():
            names = [] if self._are_kept(directory, members) else [LOG_STARTS]
            if any(directory.entry(RECOVERY_POINTS, tp) is None for tp in members):
                names.append(RECOVERY_POINTS)
            kept = directory.works and self.write(directory, names)
            if not kept:
                why = directory.failure or "it cannot be written now"
                error = KafkaStorageError(f"log starts in {directory.path} are not kept: {why}")
                failed.update(dict.fromkeys(members, error))
        return failed

    def _are_kept(self, directory: LogDir, partitions: Collection[TopicPartition]) -> bool:
        known = directory.entries.get(LOG_STARTS, {})
        logs = {tp: self._hosted.get(tp) for tp in partitions}
        return all(log and known.get(tp) == log.log_start_offset for tp, log in logs.items())

    def lower(self, tp: TopicPartition, directory: LogDir, end_offset: int) -> None:
        """Before a truncation: nothing on the disk may say that more than `end_offset` was safe.

        Without an entry nothing is said, and it stays so: an unknown recovery point means that
        damage is refused, while 0 would let the next start cut the log at it.

        Raises:
            OSError: the disk failed.
        """
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
            with directory.checkpointing:
                known = directory.entry(name, tp)
                if known is not None and known > end_offset:
                    directory.write_checkpoint(name, {**directory.entries[name], tp: end_offset})

    def note_cleaned(self, log: PartitionLog, offset: int) -> bool:
        """Say that a log is clean below `offset`; on return it survives a power cut.

        Returns:
            False if it was not said: the log was truncated or removed meanwhile, or the disk
            failed, which takes the directory offline.
        """
        tp = log.topic_partition
        directory = self._hosted.directory_of(tp)
        if directory is None:
            return False
        try:
            with directory.checkpointing:
                # A truncation says that it comes before it waits for this lock, see `lower`.
                if log.cleaning.is_spoilt or self._hosted.get(tp) is not log:
                    return False
                if tp in self._hosted.being_replaced:
                    return False
                before = directory.entries.get(CLEANER_OFFSETS, {})
                directory.write_checkpoint(CLEANER_OFFSETS, {**before, tp: offset})
        except OSError as error:
            self._fail_dir(directory, error)
            return False
        return True
