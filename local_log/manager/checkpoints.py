"""Writes the offset checkpoints of the log directories.

The loop and pool threads write them, one at a time for each directory. A new version keeps the
entries of partitions that are not open: an offline log needs them when it comes back.
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
    """The log manager's state; read from any thread."""

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """Return an open log."""

    @property
    def being_replaced(self) -> Container[TopicPartition]:
        """Partitions whose log is closed while another one replaces it."""

    def checkpointed_in(self, directory: LogDir) -> dict[TopicPartition, PartitionLog]:
        """Return the open logs of a directory that are not being replaced (a copy)."""

    def refused_in(self, directory: LogDir) -> dict[TopicPartition, int]:
        """Return offline partitions of a directory, with the recovery point to write for each."""

    def directory_of(self, tp: TopicPartition) -> LogDir | None:
        """Return the log directory of an open log."""


def collect(
    name: str,
    logs: Mapping[TopicPartition, PartitionLog],
    before: Mapping[TopicPartition, int],
    refused: Mapping[TopicPartition, int] = NOTHING,
) -> dict[TopicPartition, int]:
    """Make the next content of a checkpoint.

    Args:
        name: Of the checkpoint.
        logs: Open logs of the directory.
        before: Present content.
        refused: Recovery points of offline partitions, UNKNOWN if one was lost. UNKNOWN is written
            as well: the next start would read a missing one as 0, and could cut the log.
    """
    if name == CLEANER_OFFSETS:
        return dict(
            before
        )  # only the cleaner changes entries; those of deleted partitions are removed
    offsets = {tp: offset for tp, offset in before.items() if tp not in logs}
    for tp, log in logs.items():
        if name == RECOVERY_POINTS:
            offsets[tp] = UNKNOWN if log.has_damage else log.recovery_point
        elif name == HIGH_WATERMARKS:
            offsets[tp] = log.high_watermark
        elif log.log_start_known and (log.config.remote_storage_enable or log.log_start_offset > 0):
            # A plain log that begins at 0 has no entry, as in Kafka.
            offsets[tp] = log.log_start_offset
    if name == RECOVERY_POINTS:
        for tp, point in refused.items():
            offsets[tp] = max(point, offsets.get(tp, UNKNOWN))
    return offsets


class Checkpoints:
    """Writes the checkpoints of all directories."""

    def __init__(self, hosted: Hosted, fail_dir: Callable[[LogDir, OSError], None]) -> None:
        self._hosted = hosted
        self._fail_dir = fail_dir

    def write(self, directory: LogDir, names: Iterable[str]) -> bool:
        """Write checkpoints of a directory; durable on return.

        Returns:
            False if the disk failed, which takes the directory offline.
        """
        try:
            for name in names:
                self._write(directory, name)
        except OSError as error:
            self._fail_dir(directory, error)  # not if the process only lacks descriptors
            return False
        except KafkaStorageError:
            return False  # a log could not be flushed
        return directory.works

    def _write(self, directory: LogDir, name: str) -> None:
        with directory.checkpointing:
            logs = self._hosted.checkpointed_in(directory)
            before = directory.entries.get(name, {})
            refused = self._hosted.refused_in(directory)
            # Log starts may rise during the flushes: write the values up to which was flushed.
            offsets = collect(name, logs, before, refused)
            if name == LOG_STARTS:
                # A log end below the log start counts as a loss: flush up to the start first.
                for tp, log in logs.items():
                    if offsets.get(tp, 0) > log.recovery_point:
                        with suppress(LogClosed):  # deleted meanwhile
                            log.flush(offsets[tp])
            directory.write_checkpoint(name, offsets)

    def keep_log_starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaStorageError]:
        """Make the log starts of these partitions durable.

        Unknown recovery points of them are set as well. Without one, a start cannot distinguish a
        power cut from damage in a log that does not begin at 0.

        Returns:
            Partitions whose log start is not durable, with the error.
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
        """Lower all checkpoints of a partition to `end_offset`, before a truncation.

        A missing entry stays missing: an unknown recovery point makes the next start refuse damage,
        while 0 would let it cut the log there.

        Raises:
            OSError: The disk failed.
        """
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
            with directory.checkpointing:
                known = directory.entry(name, tp)
                if known is not None and known > end_offset:
                    directory.write_checkpoint(name, {**directory.entries[name], tp: end_offset})

    def note_cleaned(self, log: PartitionLog, offset: int) -> bool:
        """Write that a log is clean below `offset`; durable on return.

        Returns:
            False if it was not written: the log was truncated or removed meanwhile, or the disk
                failed, which takes the directory offline.
        """
        tp = log.topic_partition
        directory = self._hosted.directory_of(tp)
        if directory is None:
            return False
        try:
            with directory.checkpointing:
                # A truncation is noted before it waits for this lock, see `lower`.
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
