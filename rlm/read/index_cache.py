"""Indexes of remote segments, fetched once and kept on local disk.

The files are in `disk_index_cache`. Parsed indexes of a few segments stay in memory, because every
read needs one. An index is checked when it is parsed, and fetched again if it is wrong.
"""

from collections import OrderedDict
from collections.abc import Iterator

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import txn_index
from rlm.config import TierConfig
from rlm.read.disk_index_cache import DiskIndexCache
from rlm.read.loads import Loads, Wait
from rlm.read.object_faults import OFFSET_AND_TIME, index_name
from rlm.read.remote_store import RemoteStore
from rlm.read.segment_index import DamagedIndexError, SegmentIndex
from rlm.read.wait_queue import Waiter
from rlm.workers import READER_POOL
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
)
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.raised import named

MEMORY_BYTES, TRANSACTION_INDEXES_MAX = 8 << 20, 64
DISTRUSTED_MAX = 10_000
"""Bound of the segments whose index file is bypassed: perhaps none of them is ever read again.
After the bound a segment's index is parsed from disk first, and its log contradicts it once
more."""


class IndexCache:
    """Parsed indexes in memory, before the files; belongs to the owner's thread."""

    def __init__(
        self,
        *,
        store: RemoteStore,
        files: DiskIndexCache,
        loads: Loads,
        config: TierConfig,
        clock: Clock,
    ) -> None:
        self._store, self._files, self._loads = store, files, loads
        self._config, self._clock = config, clock
        self._parsed: OrderedDict[bytes, SegmentIndex] = OrderedDict()  # least recently used first
        self._used_ms: dict[bytes, int] = {}
        self._transactions: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0
        self._distrusted: dict[bytes, None] = {}  # the oldest first

    def get(
        self, metadata: RemoteLogSegmentMetadata, waiter: Waiter, reader: str = ""
    ) -> SegmentIndex | Wait:
        """Offset and time index of the segment, or the reason why they are not here yet."""
        segment_id = metadata.id.id
        found = self._parsed.get(segment_id)
        if found is not None:
            self._parsed.move_to_end(segment_id)
            self._used_ms[segment_id] = self._clock.monotonic_ms()
            return found
        return self._loads.ask(_SegmentIndexLoad(self, metadata), waiter, reader)

    def _keep(self, segment_id: bytes, index: SegmentIndex) -> None:
        self._parsed[segment_id] = index
        self._used_ms[segment_id] = self._clock.monotonic_ms()
        self._distrusted.pop(segment_id, None)
        self._bytes += index.size_bytes
        while self._bytes > MEMORY_BYTES and len(self._parsed) > 1:
            self._drop(next(iter(self._parsed)))

    def _drop(self, segment_id: bytes) -> None:
        self._bytes -= self._parsed.pop(segment_id).size_bytes
        del self._used_ms[segment_id]

    def expire(self) -> None:
        """Drop parsed indexes that were not used for `index_cache_ttl_ms`.

        Most are of segments that no longer exist.
        """
        ttl_ms = self._config.index_cache_ttl_ms
        limit_ms = self._clock.monotonic_ms() - ttl_ms
        while ttl_ms >= 0 and self._parsed:
            longest_unused = next(iter(self._parsed))
            if self._used_ms[longest_unused] >= limit_ms:
                return
            self._drop(longest_unused)

    def distrust(self, segment_id: bytes) -> None:
        """Parse the index again, from the store: the segment's log contradicts it."""
        self._distrusted[segment_id] = None
        if len(self._distrusted) > DISTRUSTED_MAX:
            del self._distrusted[next(iter(self._distrusted))]
        if segment_id in self._parsed:
            self._drop(segment_id)

    def raw(
        self, metadata: RemoteLogSegmentMetadata, kind: IndexType, *, past_cache: bool = False
    ) -> bytes:
        """The bytes of one index; blocks, for pool threads only."""
        return self._files.get(
            metadata, kind, lambda: self.raw_uncached(metadata, kind), past_cache=past_cache
        )

    def raw_uncached(self, metadata: RemoteLogSegmentMetadata, kind: IndexType) -> bytes:
        """The bytes of one index from the store; blocks, for pool threads only."""
        topic, began_ms = metadata.id.topic_id_partition.topic, self._clock.monotonic_ms()
        data: bytes | None = None
        try:
            with (
                self._store.calls.call(READER_POOL, "fetch index", self._config.call_max_ms),
                self._store.storage.fetch_index(metadata, kind) as stream,
            ):
                data = stream.read()
        except RemoteResourceNotFoundError as error:
            self._store.faults.failed(metadata, index_name(kind), error)
            raise
        except RemoteObjectDamagedError:
            raise
        except Exception as error:
            self._store.telemetry.fetch_outage.failed(named(error))
            raise
        finally:
            took_ms = self._clock.monotonic_ms() - began_ms
            size_bytes = 0 if data is None else len(data)
            self._store.telemetry.store_called(
                "fetch_index", topic, size_bytes, took_ms, failed=data is None
            )
        self._store.faults.is_there(metadata, index_name(kind))
        return data

    def transactions(
        self, metadata: RemoteLogSegmentMetadata, waiter: Waiter, reader: str = ""
    ) -> bytes | Wait:
        """The transaction index, or the reason why it is not here yet."""
        found = self._transactions.get(metadata.id.id)
        if found is not None:
            return found
        return self._loads.ask(_TransactionsLoad(self, metadata), waiter, reader)


class _IndexLoad:
    """Base of the loads of indexes, which set no memory aside."""

    def __init__(
        self, cache: IndexCache, metadata: RemoteLogSegmentMetadata, kind: str, what: str
    ) -> None:
        self._cache, self._metadata, self._what = cache, metadata, what
        self.keys = ((kind, metadata.id.id),)

    def reserve(self) -> bool:
        return True

    def failed(self, error: BaseException, is_final: bool) -> None:
        if is_final:
            self._cache._store.faults.failed(self._metadata, self._what, error)

    def free(self, number: int) -> None:
        """Nothing was set aside."""


class _SegmentIndexLoad(_IndexLoad):
    """A `Load` of offset and time index, which are parsed together."""

    def __init__(self, cache: IndexCache, metadata: RemoteLogSegmentMetadata) -> None:
        super().__init__(cache, metadata, "index", OFFSET_AND_TIME)
        self._is_distrusted = metadata.id.id in cache._distrusted

    def run(self, damaged: int) -> Iterator[SegmentIndex]:
        try:
            index = self._parse(past_cache=self._is_distrusted or damaged > 0)
        except DamagedIndexError:
            # The file on disk may be damaged: the store's bytes count.
            index = self._parse(past_cache=True)
        yield index

    def _parse(self, *, past_cache: bool) -> SegmentIndex:
        cache, metadata = self._cache, self._metadata
        offsets = cache.raw(metadata, IndexType.OFFSET, past_cache=past_cache)
        times = cache.raw(metadata, IndexType.TIMESTAMP, past_cache=past_cache)
        config = cache._config
        index = SegmentIndex(metadata, offsets, times, config.chunk_bytes, config.slice_bytes)
        cache._store.faults.read_well(metadata, self._what)
        return index

    def arrived(self, number: int, value: SegmentIndex) -> None:
        self._cache._keep(self._metadata.id.id, value)


class _TransactionsLoad(_IndexLoad):
    """A `Load` of a transaction index."""

    def __init__(self, cache: IndexCache, metadata: RemoteLogSegmentMetadata) -> None:
        super().__init__(cache, metadata, "transactions", index_name(IndexType.TRANSACTION))

    def run(self, damaged: int) -> Iterator[bytes]:
        data = self._cache.raw(self._metadata, IndexType.TRANSACTION, past_cache=damaged > 0)
        _check_transactions(self._metadata, data)
        self._cache._store.faults.read_well(self._metadata, self._what)
        yield data

    def arrived(self, number: int, value: bytes) -> None:
        cache = self._cache._transactions
        cache[self._metadata.id.id] = value
        while len(cache) > TRANSACTION_INDEXES_MAX:
            cache.popitem(last=False)


def _check_transactions(metadata: RemoteLogSegmentMetadata, data: bytes) -> None:
    """Refuse a transaction index that cannot belong to this segment.

    Raises:
        DamagedIndexError: The defect.
    """
    try:
        for entry in txn_index.iter_entries(data):
            # The marker of each is in the segment.
            if not metadata.start_offset <= entry.last_offset <= metadata.end_offset:
                raise DamagedIndexError(f"transaction index: marker at {entry.last_offset}")
    except CorruptFileError as error:
        raise DamagedIndexError(f"transaction index: {error}") from error
