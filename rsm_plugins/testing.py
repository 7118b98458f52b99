"""Every promise of `RemoteStorageManager` as a test to inherit, and a store that fails on demand.

A plugin author writes a class with one fixture and inherits the rest:

    class TestMine(RemoteStorageManagerContract):
        @pytest.fixture
        def manager(self, tmp_path):
            manager = MyRemoteStorageManager()
            manager.configure({"node.id": "1", "cluster.id": "c", ...})
            yield manager
            manager.close()

Put `pytest.register_assert_rewrite("rsm_plugins.testing")` into conftest.py for readable failures.
"""

import io
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from typing import BinaryIO

import pytest

from kafka_protocol.types import EpochEntry, TopicIdPartition
from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.segment import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
)

LOG_BYTES = bytes(range(256)) * 41 + b"end"
INDEX_BYTES: dict[IndexType, bytes] = {
    IndexType.OFFSET: b"offset index " * 9,
    IndexType.TIMESTAMP: b"time index " * 7,
    IndexType.PRODUCER_SNAPSHOT: b"producer snapshot",
    IndexType.TRANSACTION: b"transaction index",
    IndexType.LEADER_EPOCH: b"0\n2\n0 0\n3 40\n",
}


def segment(
    number: int = 1,
    *,
    topic: str = "orders",
    topic_id: bytes = b"T" * 16,
    partition: int = 0,
    start_offset: int = 0,
    size_bytes: int = len(LOG_BYTES),
) -> RemoteLogSegmentMetadata:
    """Metadata of a made-up segment; `number` makes its id."""
    owner = TopicIdPartition(topic_id, partition, topic)
    return RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(owner, number.to_bytes(16, "big")),
        start_offset=start_offset,
        end_offset=start_offset + 99,
        max_timestamp_ms=1_700_000_000_000,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_100,
        segment_size_bytes=size_bytes,
        leader_epochs=(EpochEntry(0, start_offset), EpochEntry(3, start_offset + 40)),
    )


def segment_data(log: bytes = LOG_BYTES, *, transactions: bool = True) -> LogSegmentData:
    """The parts of that segment, as open files."""
    return LogSegmentData(
        log=io.BytesIO(log),
        offset_index=io.BytesIO(INDEX_BYTES[IndexType.OFFSET]),
        time_index=io.BytesIO(INDEX_BYTES[IndexType.TIMESTAMP]),
        transaction_index=io.BytesIO(INDEX_BYTES[IndexType.TRANSACTION]) if transactions else None,
        producer_snapshot=io.BytesIO(INDEX_BYTES[IndexType.PRODUCER_SNAPSHOT]),
        leader_epoch_index=INDEX_BYTES[IndexType.LEADER_EPOCH],
    )


def copy(
    manager: RemoteStorageManager,
    metadata: RemoteLogSegmentMetadata,
    data: LogSegmentData | None = None,
) -> RemoteLogSegmentMetadata:
    """Copy a segment; returns its metadata as all later calls get it."""
    custom = manager.copy_log_segment_data(metadata, data or segment_data())
    return replace(metadata, state=SegmentState.COPY_SEGMENT_FINISHED, custom_metadata=custom)


def read(stream: BinaryIO) -> bytes:
    """All bytes of a stream, which is closed."""
    with stream:
        return stream.read()


class RemoteStorageManagerContract:
    """What every storage plugin promises. Inherit, and give a fixture `manager`."""

    @pytest.fixture
    def manager(self) -> RemoteStorageManager:
        raise NotImplementedError("give a fixture `manager`: a configured plugin, its store empty")

    def test_a_copied_segment_reads_back_byte_for_byte(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment())
        assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES

    def test_every_index_reads_back(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment())
        for kind, body in INDEX_BYTES.items():
            assert read(manager.fetch_index(copied, kind)) == body

    def test_empty_indexes_are_indexes(self, manager: RemoteStorageManager) -> None:
        data = replace(segment_data(), offset_index=io.BytesIO(), time_index=io.BytesIO())
        copied = copy(manager, segment(), data)
        assert read(manager.fetch_index(copied, IndexType.OFFSET)) == b""
        assert read(manager.fetch_index(copied, IndexType.TIMESTAMP)) == b""

    def test_a_missing_transaction_index_is_not_found(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment(), segment_data(transactions=False))
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_index(copied, IndexType.TRANSACTION)
        assert read(manager.fetch_index(copied, IndexType.OFFSET)) == INDEX_BYTES[IndexType.OFFSET]

    @pytest.mark.parametrize(
        ("start", "end"),
        [
            (0, 0),
            (0, 99),
            (1, 1),
            (100, 9_999),
            (255, 256),
            (len(LOG_BYTES) - 1, len(LOG_BYTES) - 1),
        ],
    )
    def test_ranges_are_inclusive_at_both_ends(
        self, manager: RemoteStorageManager, start: int, end: int
    ) -> None:
        copied = copy(manager, segment())
        assert read(manager.fetch_log_segment(copied, start, end)) == LOG_BYTES[start : end + 1]

    def test_a_range_past_the_end_is_clipped(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment())
        assert read(manager.fetch_log_segment(copied, 100, 10**9)) == LOG_BYTES[100:]

    def test_an_open_range_goes_to_the_end(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment())
        assert read(manager.fetch_log_segment(copied, 500)) == LOG_BYTES[500:]

    @pytest.mark.parametrize(
        ("start", "end"), [(-1, None), (len(LOG_BYTES), None), (10**9, None), (5, 4), (0, -1)]
    )
    def test_impossible_ranges_are_the_callers_mistake(
        self, manager: RemoteStorageManager, start: int, end: int | None
    ) -> None:
        copied = copy(manager, segment())
        with pytest.raises(ValueError):  # noqa: PT011 - each plugin has its own words
            manager.fetch_log_segment(copied, start, end)

    def test_a_stream_may_be_closed_before_its_end(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment())
        stream = manager.fetch_log_segment(copied, 0)
        assert stream.read(10) == LOG_BYTES[:10]
        stream.close()

    def test_streams_of_one_segment_are_independent(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment())
        with manager.fetch_log_segment(copied, 0) as one:
            one.read(7)
            assert read(manager.fetch_log_segment(copied, 3, 5)) == LOG_BYTES[3:6]
            assert one.read(5) == LOG_BYTES[7:12]

    def test_what_was_never_copied_is_not_found(self, manager: RemoteStorageManager) -> None:
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_log_segment(segment(), 0)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_index(segment(), IndexType.OFFSET)

    def test_copy_twice_under_one_id_is_harmless(self, manager: RemoteStorageManager) -> None:
        copy(manager, segment())
        copied = copy(manager, segment())
        assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES

    def test_a_copy_that_failed_half_way_can_be_repeated(
        self, manager: RemoteStorageManager
    ) -> None:
        data = replace(segment_data(), log=_BreakingFile(LOG_BYTES, after=1_000))
        with pytest.raises((RemoteStorageError, OSError)):
            manager.copy_log_segment_data(segment(), data)
        copied = copy(manager, segment())
        assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES

    def test_a_half_copy_is_not_readable(self, manager: RemoteStorageManager) -> None:
        data = replace(segment_data(), time_index=_BreakingFile(b"x" * 100, after=10))
        with pytest.raises((RemoteStorageError, OSError)):
            manager.copy_log_segment_data(segment(), data)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_index(segment(), IndexType.OFFSET)

    def test_a_log_of_another_size_than_announced_is_refused(
        self, manager: RemoteStorageManager
    ) -> None:
        with pytest.raises(RemoteStorageError):
            manager.copy_log_segment_data(segment(size_bytes=len(LOG_BYTES) + 1), segment_data())

    def test_a_copy_leaves_the_files_open(self, manager: RemoteStorageManager) -> None:
        data = segment_data()
        manager.copy_log_segment_data(segment(), data)
        assert not any(part.closed for part in data.files())

    def test_files_are_copied_from_their_begin(self, manager: RemoteStorageManager) -> None:
        data = segment_data()
        for part in data.files():
            part.read(3)
        copied = copy(manager, segment(), data)
        assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES

    def test_a_deleted_segment_is_gone(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment())
        manager.delete_log_segment_data(copied)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_log_segment(copied, 0)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_index(copied, IndexType.OFFSET)

    def test_delete_twice_is_fine(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment())
        manager.delete_log_segment_data(copied)
        manager.delete_log_segment_data(copied)

    def test_delete_of_what_never_was_is_fine(self, manager: RemoteStorageManager) -> None:
        manager.delete_log_segment_data(segment())

    def test_delete_after_a_half_copy_leaves_nothing(self, manager: RemoteStorageManager) -> None:
        data = replace(segment_data(), log=_BreakingFile(LOG_BYTES, after=1_000))
        with pytest.raises((RemoteStorageError, OSError)):
            manager.copy_log_segment_data(segment(), data)
        manager.delete_log_segment_data(segment())
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_log_segment(segment(), 0)

    def test_delete_leaves_other_segments_alone(self, manager: RemoteStorageManager) -> None:
        same_range = copy(manager, segment(1)), copy(manager, segment(2))
        manager.delete_log_segment_data(same_range[0])
        assert read(manager.fetch_log_segment(same_range[1], 0)) == LOG_BYTES

    def test_the_same_name_with_another_topic_id_is_another_topic(
        self, manager: RemoteStorageManager
    ) -> None:
        old = copy(manager, segment(1, topic_id=b"A" * 16))
        other = b"z" * len(LOG_BYTES)
        new = copy(manager, segment(1, topic_id=b"B" * 16), segment_data(other))
        assert read(manager.fetch_log_segment(old, 0)) == LOG_BYTES
        assert read(manager.fetch_log_segment(new, 0)) == other
        manager.delete_log_segment_data(old)
        assert read(manager.fetch_log_segment(new, 0)) == other

    def test_partitions_are_kept_apart(self, manager: RemoteStorageManager) -> None:
        one = copy(manager, segment(partition=1))
        with pytest.raises(RemoteResourceNotFoundError):
            manager.fetch_log_segment(segment(partition=11), 0)
        assert read(manager.fetch_log_segment(one, 0)) == LOG_BYTES

    @pytest.mark.parametrize("topic", ["../../etc", "a/b", "..", "", "/abs", "a\0b"])
    def test_names_that_lead_out_of_the_store_are_refused(
        self, manager: RemoteStorageManager, topic: str
    ) -> None:
        evil = segment(topic=topic)
        with pytest.raises(RemoteStorageError):
            manager.copy_log_segment_data(evil, segment_data())
        with pytest.raises(RemoteStorageError):
            manager.fetch_log_segment(evil, 0)
        with pytest.raises(RemoteStorageError):
            manager.delete_log_segment_data(evil)

    @pytest.mark.parametrize("custom", [b"../../etc/passwd", b"/etc/passwd"])
    def test_custom_metadata_never_leads_out_of_the_store(
        self, manager: RemoteStorageManager, custom: bytes
    ) -> None:
        evil = replace(copy(manager, segment()), custom_metadata=custom)
        with pytest.raises(RemoteStorageError):
            manager.fetch_log_segment(evil, 0)

    def test_custom_metadata_fits_the_default_limit(self, manager: RemoteStorageManager) -> None:
        copied = copy(manager, segment(topic="t" * 249))
        assert len(copied.custom_metadata or b"") <= 128

    def test_many_threads_at_once(self, manager: RemoteStorageManager) -> None:
        def life(number: int) -> bytes:
            copied = copy(manager, segment(number, start_offset=number * 100))
            body = read(manager.fetch_log_segment(copied, number, number + 9))
            manager.delete_log_segment_data(copied)
            return body

        with ThreadPoolExecutor(8) as pool:
            bodies = list(pool.map(life, range(1, 33)))
        assert bodies == [LOG_BYTES[number : number + 10] for number in range(1, 33)]


class _BreakingFile(io.BytesIO):
    """A file whose disk breaks after some bytes."""

    def __init__(self, data: bytes, *, after: int) -> None:
        super().__init__(data)
        self._after = after

    def read(self, size: int | None = -1) -> bytes:
        self._check()
        if size is None or size < 0:
            super().seek(self._after)
            self._check()
        return super().read(min(size or 0, self._after))

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        self._check()
        return super().readinto(memoryview(buffer)[: self._after])

    def _check(self) -> None:
        if self.tell() >= self._after:
            raise OSError(5, "the disk under this file broke")


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


class FaultyStorage(RemoteStorageManager):
    """Wraps a storage manager and lets a test break it, call by call.

    Attributes:
        calls: every call, in the order in which they began.
        down: while True every call fails with a retriable error.
    """

    def __init__(self, inner: RemoteStorageManager) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._faults: defaultdict[Operation, deque[Callable[[], None]]] = defaultdict(deque)
        self._late_faults: defaultdict[Operation, deque[Exception | None]] = defaultdict(deque)
        self._gates: dict[Operation, threading.Event] = {}
        self._hidden: dict[bytes, int] = {}
        self.hide_reads = 0
        self.cut_copies_after: int | None = None
        self.calls: list[Call] = []
        self.down = False

    def fail_next(self, operation: Operation, error: Exception, times: int = 1) -> None:
        """The next `times` calls raise `error` before anything is done."""

        def fault() -> None:
            raise error

        self._faults[operation].extend([fault] * times)

    def fail_next_after(self, operation: Operation, error: Exception, times: int = 1) -> None:
        """The next `times` calls do their work and then raise `error`: the caller cannot know."""
        self._late_faults[operation].extend([error] * times)

    def hold(self, operation: Operation) -> None:
        """Calls hang from now on, until `let_go`."""
        self._gates[operation] = threading.Event()

    def let_go(self, operation: Operation) -> None:
        """Hanging calls go on."""
        gate = self._gates.pop(operation, None)
        if gate is not None:
            gate.set()

    def configure(self, configs: Mapping[str, str]) -> None:
        self._inner.configure(configs)

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        self._before(Operation.COPY, metadata)
        if self.cut_copies_after is not None:
            data.log.seek(0)
            broken = _BreakingFile(data.log.read(), after=self.cut_copies_after)
            try:
                return self._inner.copy_log_segment_data(metadata, replace(data, log=broken))
            except OSError as e:
                raise RetriableRemoteStorageError(f"cut: {e}") from e
        custom = self._inner.copy_log_segment_data(metadata, data)
        self._hidden[metadata.id.id] = self.hide_reads
        self._after(Operation.COPY)
        return custom

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
        return stream

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self._before(Operation.FETCH_INDEX, metadata)
        self._maybe_hidden(metadata)
        stream = self._inner.fetch_index(metadata, index_type)
        self._after(Operation.FETCH_INDEX)
        return stream

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._before(Operation.DELETE, metadata)
        self._inner.delete_log_segment_data(metadata)
        self._after(Operation.DELETE)

    def close(self) -> None:
        self._inner.close()

    def _before(self, operation: Operation, metadata: RemoteLogSegmentMetadata) -> None:
        with self._lock:
            self.calls.append(Call(operation, metadata))
            faults = self._faults[operation]
            fault = faults.popleft() if faults else None
            gate = self._gates.get(operation)
        if gate is not None:
            gate.wait()
        if self.down:
            raise RetriableRemoteStorageError("the store is down")
        if fault is not None:
            fault()

    def _after(self, operation: Operation) -> None:
        with self._lock:
            faults = self._late_faults[operation]
            error = faults.popleft() if faults else None
        if error is not None:
            raise error

    def _maybe_hidden(self, metadata: RemoteLogSegmentMetadata) -> None:
        """An eventually consistent store: a new segment is not visible to its first readers."""
        with self._lock:
            left = self._hidden.get(metadata.id.id, 0)
            if left:
                self._hidden[metadata.id.id] = left - 1
        if left:
            raise RemoteResourceNotFoundError("not visible yet")
