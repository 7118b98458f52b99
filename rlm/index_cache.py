"""Indexes of remote segments, fetched once and kept on this machine's disk.

The files are in `disk_index_cache`. Parsed indexes of a few segments stay in memory, because every
read needs one. What an index says is checked when it is parsed, and fetched anew where it is wrong.
"""

from collections import OrderedDict
from functools import partial

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import txn_index
from rlm.disk_index_cache import DiskIndexCache
from rlm.loads import Loads, Wait, Waiter
from rlm.object_faults import OFFSET_AND_TIME, ObjectFaults, index_name
from rlm.performer import READER_POOL
from rlm.plugin_calls import PluginCalls
from rlm.segment_index import DamagedIndexError, SegmentIndex
from rlm.telemetry import Telemetry
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
)
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from runtime.clock import Clock

MEMORY_BYTES = 8 << 20


class IndexCache:
    """Parsed indexes in memory in front of the files; belongs to the owner's thread."""

    def __init__(
        self,
        *,
        files: DiskIndexCache,
        storage: RemoteStorageManager,
        loads: Loads,
        calls: PluginCalls,
        telemetry: Telemetry,
        chunk_bytes: int,
        slice_bytes: int,
        call_max_ms: int,
        clock: Clock,
        faults: ObjectFaults,
    ) -> None:
        self._faults = faults
        self._slice_bytes, self._clock = slice_bytes, clock
        self._files, self._storage, self._loads = files, storage, loads
        self._calls, self._telemetry = calls, telemetry
        self._chunk_bytes, self._call_max_ms = chunk_bytes, call_max_ms
        self._parsed: OrderedDict[bytes, SegmentIndex] = OrderedDict()
        self._transactions: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0
        self._distrusted: set[bytes] = set()

    def get(self, metadata: RemoteLogSegmentMetadata, waiter: Waiter) -> SegmentIndex | Wait:
        """Offset and time index of the segment, or why they are not here yet."""
        segment_id = metadata.id.id
        found = self._parsed.get(segment_id)
        if found is not None:
            self._parsed.move_to_end(segment_id)
            return found

        def loaded(index: SegmentIndex) -> None:
            self._parsed[segment_id] = index
            self._distrusted.discard(segment_id)
            self._bytes += index.size_bytes
            while self._bytes > MEMORY_BYTES and len(self._parsed) > 1:
                self._bytes -= self._parsed.popitem(last=False)[1].size_bytes

        distrusted = segment_id in self._distrusted

        def load(damaged: int) -> SegmentIndex:
            return self._load(metadata, past_cache=distrusted or damaged > 0)

        failed = partial(self._load_failed, metadata, OFFSET_AND_TIME)
        return self._loads.ask(("index", segment_id), load, loaded, waiter, on_failure=failed)

    def _load_failed(
        self, metadata: RemoteLogSegmentMetadata, what: str, error: BaseException, is_final: bool
    ) -> None:
        if is_final:
            self._faults.failed(metadata, what, error)

    def distrust(self, segment_id: bytes) -> None:
        """Its log contradicts it: parse it again, from the store."""
        self._distrusted.add(segment_id)
        found = self._parsed.pop(segment_id, None)
        if found is not None:
            self._bytes -= found.size_bytes

    def _load(self, metadata: RemoteLogSegmentMetadata, *, past_cache: bool) -> SegmentIndex:
        try:
            return self._parse(metadata, past_cache=past_cache)
        except DamagedIndexError:
            # The file may have been damaged here: the store's word counts.
            return self._parse(metadata, past_cache=True)

    def _parse(self, metadata: RemoteLogSegmentMetadata, *, past_cache: bool) -> SegmentIndex:
        offsets = self.raw(metadata, IndexType.OFFSET, past_cache=past_cache)
        times = self.raw(metadata, IndexType.TIMESTAMP, past_cache=past_cache)
        index = SegmentIndex(metadata, offsets, times, self._chunk_bytes, self._slice_bytes)
        self._faults.read_well(metadata, OFFSET_AND_TIME)
        return index

    def raw(
        self, metadata: RemoteLogSegmentMetadata, kind: IndexType, *, past_cache: bool = False
    ) -> bytes:
        """The bytes of one index; blocks, for pool threads."""
        return self._files.get(
            metadata, kind, lambda: self.raw_uncached(metadata, kind), past_cache=past_cache
        )

    def raw_uncached(self, metadata: RemoteLogSegmentMetadata, kind: IndexType) -> bytes:
        """The bytes of one index from the store; blocks, for pool threads."""
        topic, began_ms = metadata.id.topic_id_partition.topic, self._clock.monotonic_ms()
        data: bytes | None = None
        try:
            with (
                self._calls.call(READER_POOL, "fetch index", self._call_max_ms),
                self._storage.fetch_index(metadata, kind) as stream,
            ):
                data = stream.read()
        except RemoteResourceNotFoundError as error:
            self._faults.failed(metadata, index_name(kind), error)
            raise
        except RemoteObjectDamagedError:
            raise
        except RemoteStorageError as error:
            self._telemetry.store_read_failed(error)
            raise
        finally:
            took_ms = self._clock.monotonic_ms() - began_ms
            size_bytes = 0 if data is None else len(data)
            self._telemetry.store_called(
                "fetch_index", topic, size_bytes, took_ms, failed=data is None
            )
        self._faults.is_there(metadata, index_name(kind))
        return data

    def transactions(self, metadata: RemoteLogSegmentMetadata, waiter: Waiter) -> bytes | Wait:
        """The transaction index, or why it is not here yet."""
        segment_id = metadata.id.id
        found = self._transactions.get(segment_id)
        if found is not None:
            return found

        def loaded(data: bytes) -> None:
            self._transactions[segment_id] = data
            while len(self._transactions) > 64:
                self._transactions.popitem(last=False)

        what = index_name(IndexType.TRANSACTION)

        def load(damaged: int) -> bytes:
            data = self.raw(metadata, IndexType.TRANSACTION, past_cache=damaged > 0)
            _check_transactions(metadata, data)
            self._faults.read_well(metadata, what)
            return data

        failed = partial(self._load_failed, metadata, what)
        return self._loads.ask(("transactions", segment_id), load, loaded, waiter, failed)


def _check_transactions(metadata: RemoteLogSegmentMetadata, data: bytes) -> None:
    """Refuse a transaction index that cannot be this segment's.

    Raises:
        DamagedIndexError: what is wrong.
    """
    try:
        for entry in txn_index.iter_entries(data):
            # The marker of each lies in the segment.
            if not metadata.start_offset <= entry.last_offset <= metadata.end_offset:
                raise DamagedIndexError(f"transaction index: marker at {entry.last_offset}")
    except CorruptFileError as error:
        raise DamagedIndexError(f"transaction index: {error}") from error
