"""Replacement of a log by another one, in the same log directory or in a different one.

In the same directory: a follower's log restarts at another offset, because its leader no longer has
the following records on its disk. The new log is created beside the present one, which stays in use
until the swap. `future_dirs` has the order of the steps, and the effect of a kill between them.

The present log is closed, as a deleted one is, before its directory is renamed. Work for it on pool
threads ends in `LogClosed`, and finds no file of the new log under its paths.

In a different directory: the copy of a move, see `moving`. If the disk of the copy fails at the
last moment, the log is opened again in its old place.
"""

import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kafka_protocol.files.segment_names import partition_dir, renamed_dir
from kafka_protocol.types import TopicPartition
from local_log.checked_files import CheckedFiles, Owner
from local_log.errors import KafkaStorageError, LogClosed, LogRefused
from local_log.log.partition_log import PartitionLog
from local_log.log.results import LogHooks
from local_log.manager.deletion import DelayedDeletion
from local_log.manager.dir_failures import DirFailures
from local_log.manager.future_dirs import (
    Marker,
    NewBeginning,
    begin_at,
    remove_future,
    write_future,
)
from local_log.manager.hosted_logs import HostedLogs
from local_log.manager.log_dir import LogDir
from local_log.recovery.acceptance import NOTHING
from local_log.recovery.survey import OpenRequest
from runtime.incidents import Incident
from runtime.ports import Ports

log = logging.getLogger(__name__)


class Future(NamedTuple):
    """A log that is complete and durable, and not in its place yet.

    Attributes:
        replaces: The log that it will replace.
        directory: Its log directory.
        path: Of its directory.
        marker: Content of its marker file.
        sets_records_aside: Records of the replaced log are kept, for an operator.
    """

    replaces: PartitionLog
    directory: LogDir
    path: Path
    marker: Marker
    sets_records_aside: bool = False


Swapped = PartitionLog | KafkaStorageError


class Swap(NamedTuple):
    """A swap that was begun on the loop.

    Attributes:
        carry_out: Renames the directories; on a pool thread.
    """

    future: Future
    carry_out: Callable[[], Swapped]


class LogReplacement:
    """Replaces logs of one broker.

    Args:
        hooks_for: Makes the hooks of the new log.
    """

    def __init__(
        self,
        ports: Ports,
        hosted: HostedLogs,
        *,
        deletion: DelayedDeletion,
        failures: DirFailures,
        hooks_for: Callable[[TopicPartition, LogDir], LogHooks],
    ) -> None:
        self._disk, self._clock, self._rng = ports.disk, ports.clock, ports.rng
        self._hosted, self._deletion, self._failures = hosted, deletion, failures
        self._hooks_for = hooks_for

    # -- on pool threads

    def build(self, tp: TopicPartition, beginning: NewBeginning) -> Future:
        """Create a log beside the present one, which is not changed; durable on return.

        The rest after a failure is removed by the next start at the latest.

        Raises:
            LogClosed: The partition has no log here.
            CorruptFileError: The chain has a gap or the producer snapshot is damaged.
            KafkaStorageError: The disk failed.
        """
        present, directory = self._hosted.get(tp), self._hosted.directory_of(tp)
        if present is None or directory is None:
            raise LogClosed(f"{tp} is gone")
        path = directory.path / renamed_dir(tp, self._rng.uuid(), "future")
        marker = Marker(present.topic_id, tp, beginning.offset, beginning.log_start)
        try:
            write_future(
                self._disk,
                path,
                marker,
                beginning,
                config=present.config,
                now_ms=self._clock.wall_ms(),
            )
        except OSError as error:
            self._failures.blame(directory, error)
            with suppress(OSError):
                remove_future(self._disk, tp, path, self._rng.uuid())
            raise KafkaStorageError(f"{tp} cannot begin again now: {error}") from error
        return Future(present, directory, path, marker, beginning.accepted != NOTHING)

    def drop(self, future: Future) -> None:
        """Remove a log that will not be swapped in.

        After a failure the next start removes the rest.
        """
        tp = future.marker.topic_partition
        try:
            if self._disk.exists(future.path):
                remove_future(self._disk, tp, future.path, self._rng.uuid())
        except OSError as error:
            self._failures.blame(future.directory, error)

    # -- the swap

    def plan_swap(self, future: Future) -> Swap:
        """Close the present log permanently; on the loop.

        The caller leases it (`truncates=True`) before anything else runs on the loop, and takes it
        back after `take`: until then readers get `LogIsTruncated` and retry.

        Raises:
            LogClosed: It is no longer the partition's log; drop the future one. Nothing changed.
        """
        tp = future.marker.topic_partition
        if self._hosted.get(tp) is not future.replaces or tp in self._hosted.being_replaced:
            raise LogClosed(f"{tp} has another log by now")
        self._hosted.close_replaced(tp)
        old = future.replaces
        has_records = old.log_end_offset > old.local_log_start_offset
        suffix = "stray" if has_records and future.sets_records_aside else "delete"
        aside = old.directory.parent / renamed_dir(tp, self._rng.uuid(), suffix)
        return Swap(future, partial(self._swap, future, aside))

    def _swap(self, future: Future, aside: Path) -> Swapped:
        """Exchange the directories, see `future_dirs`; on a pool thread."""
        if future.marker.moved is not None:
            return self._move(future, aside)
        old, directory = future.replaces, future.directory
        assert old.lease.is_truncating, "nobody may read it meanwhile"
        if not directory.works:
            return KafkaStorageError(f"{directory.path} is offline: {directory.failure}")
        try:
            self._disk.rename(old.directory, aside, durable=True)
            begin_at(directory, future.marker)
            self._disk.rename(future.path, old.directory)
            new = self._open(old, future)  # which makes the rename durable
        except (OSError, LogRefused) as error:
            # For any error: the place of the files is unknown until a start.
            failure = error if isinstance(error, OSError) else OSError(errno.EIO, str(error))
            self._failures.take_offline(directory, failure)
            return KafkaStorageError(f"{directory.path} is offline: {error}")
        if aside.name.endswith("delete"):
            self._deletion.later([aside], old.config.file_delete_delay_ms)
        else:
            log.warning("records of another lineage are set aside: path=%s", aside)
        return new

    def _move(self, future: Future, aside: Path) -> Swapped:
        """Open the copy in the other log directory, whose checkpoints have its entries."""
        old, target, tp = future.replaces, future.directory, future.marker.topic_partition
        source = self._hosted.directory_of(tp)
        assert old.lease.is_truncating, "nobody may read it meanwhile"
        assert source is not None, "it is being replaced"
        if not source.works:
            return KafkaStorageError(f"{source.path} is offline: {source.failure}")
        try:
            self._disk.rename(old.directory, aside, durable=True)
        except OSError as error:
            self._failures.take_offline(source, error)
            return KafkaStorageError(f"{source.path} is offline: {error}")
        place = target.path / partition_dir(tp)
        try:
            self._disk.rename(future.path, place)
            new = self._open_at(place, target, future)
        except (OSError, LogRefused) as error:
            return self._undo(future, aside, source, error)
        source.forget([tp])
        self._deletion.later([aside], old.config.file_delete_delay_ms)
        return new

    def _undo(
        self, future: Future, aside: Path, source: LogDir, error: OSError | LogRefused
    ) -> Swapped:
        """Reopen the log in its old place; the state of the other disk is unknown until a start."""
        old, tp = future.replaces, future.marker.topic_partition
        log.error(
            Incident.MOVE_FAILED.line(
                partition=tp, directory=future.directory.path, error=str(error)
            )
        )
        if isinstance(error, OSError):
            self._failures.blame(future.directory, error)
        with suppress(OSError):
            self._disk.rename(future.directory.path / partition_dir(tp), future.path)
        try:
            self._disk.rename(aside, old.directory, durable=True)
            return self._open_at(old.directory, source, future)
        except (OSError, LogRefused) as failed:
            failure = failed if isinstance(failed, OSError) else OSError(errno.EIO, str(failed))
            self._failures.take_offline(source, failure)
            return KafkaStorageError(f"{source.path} is offline: {failed}")

    def _open_at(self, path: Path, directory: LogDir, future: Future) -> PartitionLog:
        """Open a complete log, in its new or old place."""
        old, marker = future.replaces, future.marker
        tp, moved = marker.topic_partition, marker.moved
        assert moved is not None
        request = OpenRequest(
            tp,
            path,
            old.config,
            self._clock.wall_ms(),
            recovery_point=old.recovery_point if path == old.directory else marker.offset,
            log_start=marker.log_start,
            high_watermark=moved.high_watermark,
            was_compacted=moved.cleaned >= 0,
        )
        opened = PartitionLog.open(
            request,
            topic_id=old.topic_id,
            disk=self._disk,
            hooks=self._hooks_for(tp, directory),
            files=CheckedFiles(self._disk, path, owner=Owner(old.topic_id, tp.partition)),
        )
        opened.continue_from(old)
        return opened

    def _open(self, old: PartitionLog, future: Future) -> PartitionLog:
        tp, offset = old.topic_partition, future.marker.offset
        # Offsets below its first segment are remote, even if the settings changed: a topic that was
        # removed meanwhile has the broker's defaults.
        config = replace(old.config, remote_storage_enable=True)
        request = OpenRequest(
            tp,
            old.directory,
            config,
            self._clock.wall_ms(),
            recovery_point=offset,
            log_start=future.marker.log_start,
            high_watermark=offset,
        )
        owner = Owner(old.topic_id, tp.partition)
        return PartitionLog.open(
            request,
            topic_id=old.topic_id,
            disk=self._disk,
            hooks=self._hooks_for(tp, future.directory),
            files=CheckedFiles(self._disk, old.directory, owner=owner),
        )

    def take(self, swap: Swap, swapped: Swapped) -> Swapped:
        """Make the new log the partition's; on the loop.

        Returns:
            The log, or the error; then the log directory is offline.
        """
        if isinstance(swapped, PartitionLog):
            swapped.set_config(swap.future.replaces.config)  # it may have changed meanwhile
            directory = swap.future.directory
            if swapped.directory.parent != directory.path:  # a move that failed at the end
                directory = self._hosted.directory_of(swapped.topic_partition) or directory
            self._hosted.replace(swapped, directory)
            failure = directory.failure
            if isinstance(failure, OSError):  # it failed before this log was added
                swapped.set_offline(failure)
        return swapped
