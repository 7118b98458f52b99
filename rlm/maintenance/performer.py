"""Performs the effects of tasks: the thin half of copying and expiring. Runs on pool threads."""

import io
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, TypeVar, assert_never

from msgspec import structs

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.types import EpochEntry
from kafka_protocol.wire.primitives import uuid_to_text
from rlm.deletions import Deletions
from rlm.link import messages
from rlm.link.messages import (
    DescribeLog,
    OpenSegment,
    RaiseLeaderEpoch,
    RaiseLogStart,
    RestoreChain,
)
from rlm.maintenance.broker_port import BrokerPort, OpenedFiles
from rlm.maintenance.effects import (
    AddStarted,
    BeginCopy,
    Carry,
    DeleteObjects,
    Effect,
    LocalSegment,
    Measure,
    MoveStart,
    NeedEpoch,
    OpenLocal,
    Pause,
    PutObjects,
    ReadBack,
    ReadEpochs,
    Recall,
    Report,
    Restore,
    StartedSeenMs,
    Task,
    UpdateState,
    Validate,
    WallMs,
    WasDeletedOnce,
)
from rlm.maintenance.log_facts import LogFacts, RemoteSegment
from rlm.maintenance.ownership import Ownership
from rlm.maintenance.read_back import not_given_back, read_back
from rlm.plugin_calls import PluginCalls, TaskCancelledError
from rlm.telemetry import Telemetry
from rlmm.api import (
    LOWEST_FENCE,
    MetadataNotReadyError,
    MetadataWriteTimeoutError,
    PartitionHistory,
    RemoteLogMetadataManager,
    SegmentHistory,
)
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.disk import OpenFile
from runtime.rng import Rng

log = logging.getLogger(__name__)

WRITE_LIMIT_S = 180.0

R = TypeVar("R")


def _nobody() -> None:
    """The default listener, which does nothing."""


def always() -> bool:
    """The default permission: everything is allowed."""
    return True


@dataclass(frozen=True, slots=True)
class World:
    """Collaborators of every task of a tier process.

    Attributes:
        pause: `Workers.pause`.
    """

    broker: BrokerPort
    metadata: RemoteLogMetadataManager
    storage: RemoteStorageManager
    clock: Clock
    rng: Rng
    calls: PluginCalls
    telemetry: Telemetry
    deletions: Deletions
    copy_max_ms: int
    call_max_ms: int
    pause: Callable[[Callable[[int], object], int], None]


def run_task(task: Task[R], perform: Callable[[Effect], Any]) -> R:
    """Run a task to its end; errors of an effect are raised inside the task."""
    try:
        effect = next(task)
        while True:
            try:
                result = perform(effect)
            except Exception as error:  # noqa: BLE001 - handed on to the task, which may continue
                effect = task.throw(error)
            else:
                effect = task.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        task.close()


class Performer:
    """Performs the effects of one task pass."""

    def __init__(
        self,
        world: World,
        ownership: Ownership,
        pool: str,
        on_abandoned: Callable[[], None] = _nobody,
    ) -> None:
        """Perform in a thread of `pool`.

        `on_abandoned` is called, from another thread, when a plugin call of this pass hangs and is
        abandoned. No effect is performed after that, even if the call returns later.
        """
        self._world, self._own, self._pool = world, ownership, pool
        self._on_abandoned, self._abandoned = on_abandoned, False
        self._copy_started_ms = self._put_began_ms = 0
        self._copy_id: bytes | None = None
        self._data: LogSegmentData | None = None

    def end(self) -> None:
        """Called when the pass ends, successfully or not; releases its copy."""
        self._end_copy()

    def _end_copy(self) -> None:
        if self._copy_id is not None:
            self._own.own_copies.end(self._copy_id)
            self._copy_id = None
        if self._data is not None:
            for stream in self._data.files():
                stream.close()
            self._data = None

    def __call__(self, effect: Effect) -> Any:  # noqa: C901 - one line for each effect
        """Perform one effect.

        Raises:
            TaskCancelledError: The ownership is over.
            RemoteStorageError, MetadataError, LinkFailureError, LinkEndedError: The effect failed.
        """
        if self._own.cancellation.cancelled:
            raise TaskCancelledError("this ownership is over")
        if self._abandoned:
            raise TaskCancelledError("this pass was given up")
        world = self._world
        match effect:
            case Validate(closed_segments):
                self._end_copy()
                return self._validate(closed_segments=closed_segments)
            case WallMs():
                return world.clock.wall_ms()
            case OpenLocal(base_offset):
                return self._open(base_offset)
            case BeginCopy():
                return self._begin_copy()
            case AddStarted(metadata, metadata_offset):
                return self._wait(world.metadata.add(metadata, self._own.fence, metadata_offset))
            case PutObjects():
                return self._put(effect)
            case ReadBack():
                return self._read_back(effect)
            case Pause(wait_ms):
                return world.pause(self._own.cancellation.wait, wait_ms)
            case UpdateState(update, metadata_offset):
                return self._wait(world.metadata.update(update, self._own.fence, metadata_offset))
            case DeleteObjects():
                return self._delete(effect)
            case StartedSeenMs(metadata):
                seen = world.metadata.started_seen_ms(metadata.id)
                return world.clock.wall_ms() if seen is None else seen
            case WasDeletedOnce(segment_id):
                return segment_id in self._own.deleted_once
            case MoveStart(offset, reason):
                return world.broker.raise_log_start(
                    RaiseLogStart(*self._names(), offset=offset, reason=reason)
                )
            case Recall():
                return self._recall()
            case ReadEpochs(metadata):
                return self._read_epochs(metadata)
            case Restore(chain):
                return world.broker.restore_chain(RestoreChain(*self._names(), entries=[*chain]))
            case Carry(log_start):
                return world.metadata.carry(self._own.partition, self._own.fence, log_start)
            case Report(report):
                return self._report(report)
            case NeedEpoch(used):
                return world.broker.raise_leader_epoch(RaiseLeaderEpoch(*self._names(), used=used))
            case Measure():
                return world.telemetry.measured(self._own.partition, **asdict(effect))
            case _:
                assert_never(effect)

    def _names(self) -> tuple[bytes, int, int]:
        partition = self._own.partition
        return partition.topic_id, partition.partition, self._own.fence.leader_epoch

    def _validate(self, *, closed_segments: bool) -> LogFacts:
        """Read the description of the local log, then the remote segments.

        In between another pass may have moved the log start offset and deleted segments below it.
        So a hole is one only if the log start offset is still the same.

        Only local segments above the last reported copy are requested: thousands may be below it.
        If less is copied by now, they are requested again.
        """
        metadata = self._world.metadata
        asked = DescribeLog(
            *self._names(), closed_from=self._closed_from() if closed_segments else _OFFSET_MAX
        )
        began_ms = self._world.clock.monotonic_ms()
        description = self._world.broker.describe(asked)
        while True:
            remote = [
                RemoteSegment(segment, metadata.finished_order(segment.id))
                for segment in metadata.list_segments(self._own.partition)
            ]
            if not metadata.is_ready(self._own.partition):
                # The state that was ready is over. The next barrier must be read back before this
                # partition is validated, its log start offset moves, or its copies are reported.
                raise MetadataNotReadyError("this ownership is over for the metadata manager")
            facts = LogFacts(description, remote)
            took_ms = self._world.clock.monotonic_ms() - began_ms
            self._world.telemetry.validated(self._own.partition, took_ms)
            if facts.hole() is not None:
                description = self._world.broker.describe(asked)
                if description.log_start_offset == facts.log.log_start_offset:
                    return facts
            elif closed_segments and not facts.names_what_is_needed:
                asked = DescribeLog(*self._names(), closed_from=facts.needed_from)
                description = self._world.broker.describe(asked)
            else:
                return facts

    def _closed_from(self) -> int:
        last = self._own.last_report
        return last.last_offset + 1 if isinstance(last, messages.CopiedThrough) else 0

    def _recall(self) -> PartitionHistory:
        metadata, partition = self._world.metadata, self._own.partition
        history = metadata.history(partition)
        if history is not None:
            return history
        segments = tuple(  # a manager that keeps no history: nothing is proved by fences
            SegmentHistory(segment, LOWEST_FENCE, None, metadata.finished_order(segment.id))
            for segment in metadata.list_segments(partition)
        )
        return PartitionHistory({}, {}, -1, -1, segments)

    def _read_epochs(self, metadata: RemoteLogSegmentMetadata) -> list[EpochEntry] | None:
        world, limit_ms, what = self._world, self._world.call_max_ms, IndexType.LEADER_EPOCH
        try:
            with (
                world.calls.call(
                    self._pool, "fetch index", limit_ms, self._own.cancellation, self._abandon
                ),
                world.storage.fetch_index(metadata, what) as stream,
            ):
                return epoch_checkpoint.parse(stream.read())
        except (RemoteResourceNotFoundError, RemoteObjectDamagedError, CorruptFileError) as error:
            log.warning("epoch index cannot be read: id=%s %s", uuid_to_text(metadata.id.id), error)
            return None

    def _open(self, base_offset: int) -> LocalSegment:
        opened = self._world.broker.open_segment(
            OpenSegment(*self._names(), base_offset=base_offset)
        )
        self._data = segment_data(opened)
        return LocalSegment(opened.answer, self._data)

    def _begin_copy(self) -> bytes:
        self._world.calls.check_may_write()
        self._copy_started_ms = self._world.clock.monotonic_ms()
        self._copy_id = self._world.rng.uuid()
        self._own.own_copies.begin(self._copy_id)
        return self._copy_id

    def _wait(self, write: Any) -> None:
        try:
            write.result(WRITE_LIMIT_S)
        except FutureTimeoutError as error:
            raise MetadataWriteTimeoutError("the metadata manager did not say in time") from error

    def _put(self, effect: PutObjects) -> bytes | None:
        world, topic = self._world, self._own.partition.topic
        left_ms = self._copy_left_ms()
        if left_ms <= 0:
            spent_ms = world.copy_max_ms - left_ms
            raise RetriableRemoteStorageError(f"the copy maximum has passed: spent_ms={spent_ms}")
        began_ms = self._put_began_ms = world.clock.monotonic_ms()
        try:
            with world.calls.call(self._pool, "copy", left_ms, self._own.cancellation, writes=True):
                custom = world.storage.copy_log_segment_data(effect.metadata, effect.data)
        except RemoteStorageError:
            took_ms = world.clock.monotonic_ms() - began_ms
            world.telemetry.store_called("copy", topic, 0, took_ms, failed=True)
            raise
        took_ms = world.clock.monotonic_ms() - began_ms
        world.telemetry.store_called("copy", topic, effect.metadata.segment_size_bytes, took_ms)
        return custom

    def _copy_left_ms(self) -> int:
        spent_ms = self._world.clock.monotonic_ms() - self._copy_started_ms
        return self._world.copy_max_ms - spent_ms

    def _read_back(self, effect: ReadBack) -> str:
        world, topic = self._world, self._own.partition.topic
        try:
            read_back(world.storage, effect.metadata, effect.data, self._reading)
        except RemoteResourceNotFoundError as error:
            if self._copy_left_ms() > effect.again_in_ms:
                return str(error) or "no reason given"
            raise not_given_back(str(error)) from error
        size_bytes = effect.metadata.segment_size_bytes
        world.telemetry.copied(topic, size_bytes)
        log.info(
            "copied segment: partition=%s base_offset=%d size_bytes=%d took_ms=%d id=%s",
            self._own.partition.topic_partition,
            effect.metadata.start_offset,
            size_bytes,
            world.clock.monotonic_ms() - self._put_began_ms,
            uuid_to_text(effect.metadata.id.id),
        )
        return ""

    @contextmanager
    def _reading(self, operation: str) -> Iterator[None]:
        """Around a call that reads a copy back: it may hang, and counts as a call of the store."""
        world, topic = self._world, self._own.partition.topic
        began_ms, failed = world.clock.monotonic_ms(), True
        cancellation = self._own.cancellation
        limit_ms = max(1, min(world.call_max_ms, self._copy_left_ms()))
        try:
            with world.calls.call(self._pool, operation, limit_ms, cancellation, self._abandon):
                yield
            failed = False
        finally:
            took_ms = world.clock.monotonic_ms() - began_ms
            world.telemetry.store_called(operation, topic, 0, took_ms, failed=failed)

    def _delete(self, effect: DeleteObjects) -> None:
        world, topic, hanging = self._world, self._own.partition.topic, self._own.hanging
        hanging.check()
        began_ms, failed = world.clock.monotonic_ms(), True
        try:
            limit_ms, cancellation = world.call_max_ms, self._own.cancellation
            with (
                hanging.watched(self._abandon) as hangs,
                world.calls.call(self._pool, "delete", limit_ms, cancellation, hangs, writes=True),
            ):
                world.deletions.delete_log_segment_data(effect.metadata)
                failed = False
        except RemoteStorageError as error:
            world.telemetry.delete_failed(topic, error)
            raise
        finally:
            took_ms = world.clock.monotonic_ms() - began_ms
            world.telemetry.store_called("delete", topic, 0, took_ms, failed=failed)
        if effect.metadata.id.id not in self._own.deleted_once:
            world.telemetry.deleted(topic)
            self._own.deleted_once.add(effect.metadata.id.id)

    def _abandon(self) -> None:
        self._abandoned = True
        self._on_abandoned()

    def _report(self, report: messages.Report) -> bool:
        if isinstance(report, messages.CopiedThrough) and self._world.calls.store_is_missing:
            # The broker keeps its local segments: the copies may be gone.
            report = structs.replace(report, last_offset=-1, last_offset_epoch=-1)
        if report == self._own.last_report:
            return True
        taken = self._world.broker.report(report)
        if taken:
            self._own.last_report = report
        return taken


_OFFSET_MAX = 2**63 - 1


def segment_data(opened: OpenedFiles) -> LogSegmentData:
    """Files of an opened segment as a plugin needs them, each at position 0.

    The descriptors may share their position with the process that opened them, so it is set here.
    """
    streams = [_stream(file) for file in opened.files]
    has_transactions = opened.answer.transaction_index_is_there
    return LogSegmentData(
        log=streams[0],
        offset_index=streams[1],
        time_index=streams[2],
        producer_snapshot=streams[3],
        transaction_index=streams[4] if has_transactions else None,
        leader_epoch_index=opened.answer.leader_epoch_index,
    )


def _stream(file: OpenFile) -> BinaryIO:
    # The stream owns the descriptor from here on.
    fd, file.fd = file.fd, -1
    stream = io.FileIO(fd, "rb")
    stream.seek(0)
    return io.BufferedReader(stream, 1 << 16)
