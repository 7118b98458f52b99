"""Bytes of one remote segment: its offset index, and a range of its log read into given buffers.

What is retriable is tried again from the byte at which it stopped, by a new ranged read: no byte
comes twice and none is excluded. What a plugin raises becomes one of the pipeline's errors here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar

from kafka_protocol.types import TopicIdPartition
from pipeline.errors import DamagedDataError
from pipeline.read.groups import ReadLimits
from pipeline.read.progress import Progress
from pipeline.store import unreachable
from pipeline.values import StoreAddress
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.layout.objects import UnsafeNameError, object_names
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata

T = TypeVar("T")

_INDEX_BYTES_MAX = 256 << 20
_RETRIABLE = (RetriableRemoteStorageError, RemoteObjectDamagedError)
_DAMAGED_S = 1.0
"""So long an object that looks damaged is read again: a network may cut or flip what is right."""


def name_of(segment: RemoteLogSegmentMetadata) -> str:
    """The segment's log in the store, for messages and rows."""
    try:
        return object_names(segment).log
    except UnsafeNameError:
        partition: TopicIdPartition = segment.topic_id_partition
        return f"segment {segment.id.id.hex()} of {partition.topic_partition}"


class SegmentBytes:
    """One segment in one store.

    Attributes:
        name: of its log, for messages; errors begin with it.
        metadata: as known.
        progress: learns of every byte.
        limits: deadlines.
    """

    def __init__(
        self,
        store: RemoteStorageManager,
        address: StoreAddress,
        segment: RemoteLogSegmentMetadata,
        progress: Progress,
        limits: ReadLimits,
    ) -> None:
        self._store, self._address, self.metadata = store, address, segment
        self.progress, self.limits = progress, limits
        self.name = name_of(segment)

    def offset_index(self) -> bytes:
        """The whole offset index, as it is.

        Raises:
            RemoteResourceNotFoundError: there is no such segment.
            DamagedDataError: it is not what was copied.
            StoreUnreachableError: the store refuses or failed for too long.
        """

        def fetch() -> bytes:
            with self._store.fetch_index(self.metadata, IndexType.OFFSET) as stream:
                data = stream.read(_INDEX_BYTES_MAX + 1)
            self.progress.moved()
            return data

        index = self.retrying(fetch)
        if len(index) > _INDEX_BYTES_MAX:
            raise DamagedDataError(f"{self.name}: an offset index above {_INDEX_BYTES_MAX} bytes")
        return index

    def open(self, begin: int, end: int) -> "SegmentStream":
        """Bytes `[begin, end)` of the log; nothing is asked for yet."""
        return SegmentStream(self, begin, end)

    def fetch(self, begin: int, end: int) -> BinaryIO:
        """Open a stream of bytes `[begin, end)`, once."""
        return self._store.fetch_log_segment(self.metadata, begin, end - 1)

    def retrying(self, call: Callable[[], T]) -> T:
        """Call until it succeeds, or nothing came for too long; errors are the pipeline's."""
        retry_s = self.limits.retry_s

        def patience_s(error: BaseException) -> float:
            is_damage = isinstance(error, RemoteObjectDamagedError)
            return min(_DAMAGED_S, retry_s) if is_damage else retry_s

        with self._errors():
            return self.progress.retrying(_RETRIABLE, patience_s)(call)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except RemoteResourceNotFoundError:
            raise
        except RemoteObjectDamagedError as error:
            raise DamagedDataError(f"{self.name}: {error}") from error
        except ValueError as error:  # the plugin sees another size than the metadata has
            raise DamagedDataError(f"{self.name}: {error}") from error
        except RetriableRemoteStorageError as error:
            reason = f"{self.name}: nothing for {self.limits.retry_s:.0f} s: {error}"
            raise unreachable(self._address, reason) from error
        except RemoteStorageError as error:
            raise unreachable(self._address, f"{self.name}: {error}") from error


class SegmentStream:
    """A range of a segment's log, read in pieces.

    Attributes:
        position: of the next byte.
        end: exclusive.
    """

    def __init__(self, segment: SegmentBytes, begin: int, end: int) -> None:
        self._segment = segment
        self.position, self.end = begin, end
        self._stream: Any = None  # plugins give BinaryIO, some without readinto1

    def fill(self, buffer: memoryview) -> int:
        """Read until `buffer` is full or the range ends; returns how many bytes came.

        Raises:
            RemoteResourceNotFoundError: there is no such segment (any more).
            DamagedDataError: the object is shorter or longer than its metadata says, or damaged.
            StoreUnreachableError: the store refuses or failed for too long.
            StoppedError: the reader was closed.
        """
        begin = self.position
        until = begin + min(len(buffer), self.end - begin)

        def read_on() -> None:
            before = self.position
            try:
                self._read_to(buffer, begin, until)
            except _RETRIABLE:
                self.close()
                if self.position == before:
                    raise  # to the retries; an attempt that brought bytes begins them again

        while self.position < until:
            self._segment.retrying(read_on)
        return until - begin

    def _read_to(self, buffer: memoryview, begin: int, until: int) -> None:
        segment = self._segment
        if self._stream is None and self.position < self.end:
            self._stream = segment.fetch(self.position, self.end)
        while self.position < until:
            left = min(until - self.position, segment.limits.call_bytes)
            at = self.position - begin
            count = _read_some(self._stream, buffer[at : at + left])
            if not count:
                raise DamagedDataError(
                    f"{segment.name}: the object ends at byte {self.position} of"
                    f" {segment.metadata.segment_size_bytes}"
                )
            self.position += count
            segment.progress.moved()
        if self.position == self.end and self._stream is not None:
            if self._stream.read(1):
                raise DamagedDataError(
                    f"{segment.name}: the store gives bytes behind byte {self.end - 1}, the last"
                    " that was asked for"
                )
            self.close()

    def close(self) -> None:
        """Let go of the stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _read_some(stream: Any, buffer: memoryview) -> int:
    """At least one byte, 0 at the end; one read of the store where the stream allows it."""
    for name in ("readinto1", "readinto"):
        read_into = getattr(stream, name, None)
        if read_into is not None:
            return int(read_into(buffer) or 0)
    data = stream.read(len(buffer))
    buffer[: len(data)] = data
    return len(data)
