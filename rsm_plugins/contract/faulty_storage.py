"""A storage plugin around another one that fails on demand, call by call and byte by byte.

For tests of code that uses a plugin. Nothing here sleeps: calls that hang or are slow wait until
the test releases them.
"""

import io
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import BinaryIO, TypeVar

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.contract.samples import BreakingFile
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from runtime.override import override

T = TypeVar("T")


class Operation(Enum):
    """The calls of a storage manager that can be made to fail."""

    COPY = "copy"
    FETCH = "fetch"
    FETCH_INDEX = "fetch_index"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Call:
    """A call that reached the store."""

    operation: Operation
    metadata: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Body:
    """A fault in the body of one answer.

    Attributes:
        short_after: The body ends after so many bytes, without an error.
        reset_after: The connection breaks after so many bytes: a retriable error.
        flip_at: One bit of this byte is flipped.
        slow_until: The first byte comes when this event is set.
    """

    short_after: int | None = None
    reset_after: int | None = None
    flip_at: int | None = None
    slow_until: threading.Event | None = None


class FaultyStorage(RemoteStorageManager):
    """Wraps a storage manager so that a test can make its calls fail.

    Attributes:
        calls: Every call, in the order in which they began.
        closed_after: For each `close`, the number of calls that had begun before it.
        down: While True every call fails with a retriable error.
        cut_copies_after: Every copy breaks after so many bytes of the log.
        hide_reads: A segment copied from now on is not found by its next so many reads, as in a
            store that is only eventually consistent.
    """

    def __init__(self, inner: RemoteStorageManager) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._faults: defaultdict[Operation, deque[Exception]] = defaultdict(deque)
        self._late_faults: defaultdict[Operation, deque[Exception]] = defaultdict(deque)
        self._bodies: defaultdict[Operation, deque[Body]] = defaultdict(deque)
        self._gates: dict[Operation, threading.Event] = {}
        self._hidden: dict[bytes, int] = {}
        self.hide_reads = 0
        self.cut_copies_after: int | None = None
        self.calls: list[Call] = []
        self.closed_after: list[int] = []
        self.down = False

    def replace_inner(self, inner: RemoteStorageManager) -> None:
        """Continue with another plugin on the same store, as a restarted process does."""
        self._inner = inner

    def fail_next(self, operation: Operation, error: Exception, times: int = 1) -> None:
        """Let the next `times` calls raise `error` before anything is done."""
        self._faults[operation].extend([error] * times)

    def fail_next_after(self, operation: Operation, error: Exception, times: int = 1) -> None:
        """Let the next `times` calls do their work and then raise `error`: their answer is lost."""
        self._late_faults[operation].extend([error] * times)

    def damage_next(self, operation: Operation, body: Body, times: int = 1) -> None:
        """Damage or slow down the bodies of the next `times` answers of FETCH or FETCH_INDEX."""
        self._bodies[operation].extend([body] * times)

    def hold(self, operation: Operation) -> None:
        """Let calls hang from now on, until `let_go`."""
        self._gates[operation] = threading.Event()

    def let_go(self, operation: Operation) -> None:
        """Let hanging calls continue."""
        gate = self._gates.pop(operation, None)
        if gate is not None:
            gate.set()

    @override
    def configure(self, configs: Mapping[str, str]) -> None:
        self._inner.configure(configs)

    @override
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        self._before(Operation.COPY, metadata)
        if self.cut_copies_after is not None:
            data.log.seek(0)
            broken = BreakingFile(data.log.read(), after=self.cut_copies_after)
            try:
                return self._inner.copy_log_segment_data(metadata, replace(data, log=broken))
            except OSError as e:
                raise RetriableRemoteStorageError(f"cut: {e}") from e
        custom = self._inner.copy_log_segment_data(metadata, data)
        self._hidden[metadata.id.id] = self.hide_reads
        self._after(Operation.COPY)
        return custom

    @override
    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        self._before(Operation.FETCH, metadata)
        self._maybe_hidden(metadata)
        stream = self._inner.fetch_log_segment(metadata, start_position, end_position)
        self._after(Operation.FETCH)
        return self._damaged(Operation.FETCH, stream)

    @override
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self._before(Operation.FETCH_INDEX, metadata)
        self._maybe_hidden(metadata)
        stream = self._inner.fetch_index(metadata, index_type)
        self._after(Operation.FETCH_INDEX)
        return self._damaged(Operation.FETCH_INDEX, stream)

    @override
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._before(Operation.DELETE, metadata)
        self._inner.delete_log_segment_data(metadata)
        self._after(Operation.DELETE)

    @override
    def close(self) -> None:
        self.closed_after.append(len(self.calls))
        self._inner.close()

    def _before(self, operation: Operation, metadata: RemoteLogSegmentMetadata) -> None:
        with self._lock:
            self.calls.append(Call(operation, metadata))
            error = _next(self._faults[operation])
            gate = self._gates.get(operation)
        if gate is not None:
            gate.wait()
        if self.down:
            raise RetriableRemoteStorageError("the store is down")
        if error is not None:
            raise error

    def _after(self, operation: Operation) -> None:
        with self._lock:
            error = _next(self._late_faults[operation])
        if error is not None:
            raise error

    def _damaged(self, operation: Operation, stream: BinaryIO) -> BinaryIO:
        with self._lock:
            body = _next(self._bodies[operation])
        return stream if body is None else io.BufferedReader(_DamagedBody(stream, body))

    def _maybe_hidden(self, metadata: RemoteLogSegmentMetadata) -> None:
        with self._lock:
            left = self._hidden.get(metadata.id.id, 0)
            if left:
                self._hidden[metadata.id.id] = left - 1
        if left:
            raise RemoteResourceNotFoundError("not visible yet")


class _DamagedBody(io.RawIOBase):
    """The bytes of a stream, as a bad network or a bad disk delivers them."""

    def __init__(self, stream: BinaryIO, body: Body) -> None:
        self._stream, self._body = stream, body
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: Buffer
        body, begin = self._body, self._position
        if body.slow_until is not None:
            body.slow_until.wait()
        capacity = len(buffer)
        for end in (body.short_after, body.reset_after):
            if end is not None:
                capacity = min(capacity, end - begin)
        if not capacity and body.reset_after == begin:
            raise RetriableRemoteStorageError(f"connection reset after {begin} bytes")
        data = bytearray(self._stream.read(capacity))
        if body.flip_at is not None and begin <= body.flip_at < begin + len(data):
            data[body.flip_at - begin] ^= 1
        memoryview(buffer)[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _next(queue: deque[T]) -> T | None:
    return queue.popleft() if queue else None
