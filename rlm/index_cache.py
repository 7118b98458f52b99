"""Indexes of remote segments, fetched once and kept on this machine's disk.

Directory `remote-log-index-cache` under the first log directory, files as Kafka names them:
`<start offset>_<segment id>.<kind>`. A file appears by a rename and is fsynced before; it is
checked when it is used, and fetched anew where it is damaged. Bounded by bytes, the least recently
used goes first; what was there before a restart is used again. Parsed indexes of a few segments
stay in memory, because every read needs one.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from kafka_protocol.wire.primitives import uuid_to_text
from rlm.loads import Loads, Wait, Waiter
from rlm.performer import READER_POOL
from rlm.plugin_calls import PluginCalls
from rlm.segment_index import DamagedIndexError, SegmentIndex
from rlm.telemetry import Telemetry
from rsm_plugins.api import RemoteStorageError, RemoteStorageManager
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.disk import Disk

log = logging.getLogger(__name__)

DIRECTORY = "remote-log-index-cache"
MEMORY_BYTES = 8 << 20
_SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
}


class DiskIndexCache:
    """The files; called from pool threads, one loader per file at a time (see `Loads`)."""

    def __init__(
        self, disk: Disk, log_dir: Path, size_bytes_max: int, clock: Clock, ttl_ms: int = -1
    ) -> None:
        """Keep at most `size_bytes_max`, and each as long as it is used within `ttl_ms` (-1: ever).

        What an earlier process left counts as used now.
        """
        self._disk, self._directory, self._max = disk, log_dir / DIRECTORY, size_bytes_max
        self._clock, self._ttl_ms = clock, ttl_ms
        self._lock = Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._used_ms: dict[str, int] = {}
        self._total = 0
        self._opened = False

    def _open(self) -> None:
        """Make the directory, or take over what an earlier process left; the lock is held."""
        if self._opened:
            return
        self._disk.make_dirs(self._directory)
        for name in sorted(self._disk.list_dir(self._directory)):
            path = self._directory / name
            if not name.endswith(tuple(_SUFFIXES.values())):
                self._disk.unlink(path)  # half written, or doomed
                continue
            self._sizes[name] = self._disk.size(path)
            self._total += self._sizes[name]
            self._used_ms[name] = self._clock.monotonic_ms()
        self._opened = True

    def get(
        self,
        metadata: RemoteLogSegmentMetadata,
        kind: IndexType,
        fetch: Callable[[], bytes],
        *,
        past_cache: bool,
    ) -> bytes:
        """The index's bytes, from here or from the store."""
        name = f"{metadata.start_offset}_{uuid_to_text(metadata.id.id)}{_SUFFIXES[kind]}"
        path = self._directory / name
        with self._lock:
            self._open()
            if name in self._sizes and not past_cache:
                self._sizes.move_to_end(name)
                self._used_ms[name] = self._clock.monotonic_ms()
                try:
                    return self._disk.read_file(path)
                except OSError as error:
                    log.warning("cached index cannot be read and is fetched: %s", error)
        data = fetch()
        try:
            self._disk.atomic_write(path, data)
        except OSError as error:
            log.warning("index cannot be cached: %s", error)
            return data
        with self._lock:
            self._total += len(data) - self._sizes.pop(name, 0)
            self._sizes[name] = len(data)
            self._used_ms[name] = self._clock.monotonic_ms()
            self._evict(name)
        return data

    def set_bound(self, size_bytes_max: int) -> None:
        """Keep at most so much from now on."""
        with self._lock:
            self._max = size_bytes_max
            self._evict("")

    def expire(self) -> None:
        """Remove what was not used for long."""
        if self._ttl_ms < 0:
            return
        limit_ms = self._clock.monotonic_ms() - self._ttl_ms
        with self._lock:
            while self._sizes and self._used_ms[next(iter(self._sizes))] < limit_ms:
                self._remove_first()

    def _evict(self, keep: str) -> None:
        while self._total > self._max and self._sizes and next(iter(self._sizes)) != keep:
            self._remove_first()

    def _remove_first(self) -> None:
        name, size_bytes = self._sizes.popitem(last=False)
        del self._used_ms[name]
        self._total -= size_bytes
        self._disk.unlink(self._directory / name)

    @property
    def total_bytes(self) -> int:
        """Bytes of all cached files."""
        return self._total


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
    ) -> None:
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

        return self._loads.ask(("index", segment_id), load, loaded, waiter)

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
        return SegmentIndex(metadata, offsets, times, self._chunk_bytes, self._slice_bytes)

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
        except RemoteStorageError as error:
            self._telemetry.store_read_failed(error)
            raise
        finally:
            took_ms = self._clock.monotonic_ms() - began_ms
            size_bytes = 0 if data is None else len(data)
            self._telemetry.store_called(
                "fetch_index", topic, size_bytes, took_ms, failed=data is None
            )
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

        def load(damaged: int) -> bytes:
            return self.raw(metadata, IndexType.TRANSACTION, past_cache=damaged > 0)

        return self._loads.ask(("transactions", segment_id), load, loaded, waiter)
