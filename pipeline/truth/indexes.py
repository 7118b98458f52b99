"""Indexes of remote segments that a planner needs, read side by side and remembered.

An index of a finished segment never changes, so what was read once is kept by segment id while the
log is open: the entries that were used last, for a stream passes segment after segment for months.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import producer_snapshot, txn_index
from kafka_protocol.files.txn_index import AbortedTransaction
from pipeline.errors import DamagedDataError, DataLossError
from pipeline.plan.live import LiveRun
from pipeline.store import from_store
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageManager,
)
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from runtime.executors import ThreadPool

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_THREADS = 16
_ABORTED_MAX = 200_000
"""Entries that are kept, and one for each index; about 40 MB."""
_OPEN_FROM_MAX = 10_000
"""Segments whose first open offset is kept."""

T = TypeVar("T")
A = TypeVar("A")
Entries = tuple[AbortedTransaction, ...]


class Remembered(Generic[K, V]):
    """Values by key; the least recently used ones go when their weights add up to too much."""

    def __init__(self, weight_max: int) -> None:
        """Nothing is kept yet.

        Args:
            weight_max: of all values together (inclusive).
        """
        self._weight_max = weight_max
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.weight = 0

    def __contains__(self, key: K) -> bool:
        """Whether `get` finds it; counts as no use."""
        return key in self._kept

    def get(self, key: K) -> V:
        """The value; it was used now.

        Raises:
            KeyError: it is not there, or not any more.
        """
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Keep it, if it is not too heavy alone."""
        self._drop(key)
        if weight > self._weight_max:
            return
        self._kept[key] = value, weight
        self.weight += weight
        while self.weight > self._weight_max:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: K) -> None:
        _, weight = self._kept.pop(key, (None, 0))
        self.weight -= weight


class SegmentIndexes:
    """Reads indexes; one thread asks, several read.

    Threads: `runtime.executors` makes them, named, and only when something is read.
    """

    def __init__(self, store: Callable[[], RemoteStorageManager]) -> None:
        """Nothing is opened yet.

        Args:
            store: gives the plugin, the same each time.
        """
        self._store = store
        self._pool: ThreadPool | None = None
        self._aborted: Remembered[bytes, Entries] = Remembered(_ABORTED_MAX)
        self._open_from: Remembered[bytes, int | None] = Remembered(_OPEN_FROM_MAX)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def side_by_side(self, call: Callable[[A], T], values: Sequence[A]) -> list[T]:
        """Call for each value, at most `_THREADS` at a time; results in the order of the values."""
        if len(values) < 2:
            return [call(value) for value in values]
        if self._pool is None:
            self._pool = ThreadPool("pipeline-plan", _THREADS)
        futures = [self._pool.submit(call, value) for value in values]
        return [future.result() for future in futures]

    def aborted(self, runs: Iterable[LiveRun], end: int) -> list[AbortedTransaction]:
        """Transactions whose ABORT marker lies in these runs.

        A marker in another part of a run's segment is of another lineage, or in another run, too.
        Segments are excluded as soon as what comes before them proves that they cannot hold one
        that began below `end`.

        Args:
            runs: ascending, without a hole.
            end: the first offset that is not read.

        Raises:
            DataLossError, DamagedDataError, StoreUnreachableError: an index cannot be read.
        """
        found: list[AbortedTransaction] = []
        waiting = [run for run in runs if not run.segment.txn_index_empty]
        for at in range(0, len(waiting), _THREADS):
            some = waiting[at : at + _THREADS]
            entries_of = self._entries_of(some)
            for run in some:
                for entry in entries_of[run.segment.id.id]:
                    if not run.first <= entry.last_offset <= run.last:
                        continue
                    found.append(entry)
                    if entry.last_stable_offset >= end:
                        return found
        return found

    def _entries_of(self, runs: Iterable[LiveRun]) -> dict[bytes, Entries]:
        """The transaction indexes of these segments, by segment id; read where not remembered."""
        segments = {run.segment.id.id: run.segment for run in runs}
        found = {key: self._aborted.get(key) for key in segments if key in self._aborted}
        new = [one for key, one in segments.items() if key not in found]
        read = self.side_by_side(partial(_read_aborted, self._store()), new) if new else []
        for segment, entries in zip(new, read, strict=True):
            found[segment.id.id] = entries
            self._aborted.put(segment.id.id, entries, 1 + len(entries))
        return found

    def open_from(self, segment: RemoteLogSegmentMetadata) -> int | None:
        """The lowest first offset of a transaction that is open at the segment's end, or None.

        Raises:
            DataLossError, DamagedDataError, StoreUnreachableError: the snapshot cannot be read.
        """
        self.bring_open_from([segment])
        return self._open_from.get(segment.id.id)

    def bring_open_from(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Read side by side what `open_from` will be asked for.

        Raises:
            DataLossError, DamagedDataError, StoreUnreachableError: a snapshot cannot be read.
        """
        new = [one for one in segments if one.id.id not in self._open_from]
        read = self.side_by_side(partial(_read_open_from, self._store()), new) if new else []
        for segment, lowest in zip(new, read, strict=True):
            self._open_from.put(segment.id.id, lowest)


def read_index(
    store: RemoteStorageManager, segment: RemoteLogSegmentMetadata, kind: IndexType
) -> bytes:
    """One whole index, with retries within a deadline.

    Raises:
        DataLossError: segment or index are not there.
        DamagedDataError: it is not what was copied.
        StoreUnreachableError: the store failed.
    """

    def read() -> bytes:
        with store.fetch_index(segment, kind) as stream:
            return stream.read()

    try:
        return from_store(read)
    except RemoteResourceNotFoundError as error:
        raise DataLossError(
            f"{describe(segment)}: its {kind.value} index is not in the store ({error}); plan"
            " again, it may have been deleted"
        ) from error
    except RemoteObjectDamagedError as error:
        raise _damaged(segment, kind, error) from error


def describe(segment: RemoteLogSegmentMetadata) -> str:
    """A segment's name in messages."""
    partition = segment.topic_id_partition.topic_partition
    return f"{partition}: segment of offsets {segment.start_offset:,} to {segment.end_offset:,}"


def _damaged(
    segment: RemoteLogSegmentMetadata, kind: IndexType, error: Exception
) -> DamagedDataError:
    return DamagedDataError(f"{describe(segment)}: its {kind.value} index is damaged: {error}")


def _read_open_from(store: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> int | None:
    data = read_index(store, segment, IndexType.PRODUCER_SNAPSHOT)
    try:
        producers = producer_snapshot.parse(data)
    except CorruptFileError as error:
        raise _damaged(segment, IndexType.PRODUCER_SNAPSHOT, error) from error
    firsts = [one.current_txn_first_offset for one in producers]
    return min((first for first in firsts if first >= 0), default=None)


def _read_aborted(
    store: RemoteStorageManager, segment: RemoteLogSegmentMetadata
) -> tuple[AbortedTransaction, ...]:
    try:
        data = read_index(store, segment, IndexType.TRANSACTION)
    except DataLossError as error:
        if not isinstance(error.__cause__, RemoteResourceNotFoundError):
            raise
        # The index exists only where something was aborted; whether the segment does, its offset
        # index says.
        read_index(store, segment, IndexType.OFFSET)
        return ()
    try:
        return tuple(txn_index.iter_entries(data))
    except CorruptFileError as error:
        raise _damaged(segment, IndexType.TRANSACTION, error) from error
