"""Index files of remote segments on local disk, bounded by bytes. Called from pool threads.

Directory `remote-log-index-cache`, files named as in Kafka: `<start offset>_<segment id>.<kind>`. A
file is the index's bytes and a trailer of 8 bytes: `TMI1` and the CRC32C of name and bytes. So a
file that is cut, has a flipped bit or belongs to another segment is not used, but fetched again. A
file is fsynced before it appears by a rename. The least recently used file is evicted first; files
of an earlier process are used again.

A directory that fails fails no read: the cache is switched off until the tier starts again, with
one ERROR line and a health reason. Running out of descriptors or memory does not switch it off.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from crc32c import crc32c

from kafka_protocol.wire.primitives import uuid_to_text
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.disk import Disk
from runtime.disk_errors import is_exhausted
from runtime.incidents import Incident

log = logging.getLogger(__name__)

DIRECTORY = "remote-log-index-cache"
TRAILER_BYTES = 8
_MAGIC = b"TMI1"
_SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.TRANSACTION: ".txnindex",
}


def sealed(name: str, data: bytes) -> bytes:
    """The content of the file `name` that keeps `data`."""
    return b"".join((data, _MAGIC, crc32c(data, crc32c(name.encode())).to_bytes(4, "big")))


def unsealed(name: str, content: bytes) -> bytes | None:
    """The content of the file `name`; None if other bytes were written under this name."""
    data = content[:-TRAILER_BYTES]
    return data if len(content) >= TRAILER_BYTES and sealed(name, data) == content else None


class DiskIndexCache:
    """The files; one loader per file at a time (see `Loads`).

    Attributes:
        failure: Why the cache is off, None while it is on.
    """

    def __init__(
        self, disk: Disk, cache_dir: Path, size_bytes_max: int, clock: Clock, ttl_ms: int = -1
    ) -> None:
        """Keep at most `size_bytes_max`; a file unused for `ttl_ms` is removed (-1: never).

        Files of an earlier process count as used at the start.
        """
        self._disk, self._directory, self._max = disk, cache_dir / DIRECTORY, size_bytes_max
        self._clock, self._ttl_ms = clock, ttl_ms
        self._lock = Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._used_ms: dict[str, int] = {}
        self._total = 0
        self._opened = False
        self.failure: str | None = None

    def get(
        self,
        metadata: RemoteLogSegmentMetadata,
        kind: IndexType,
        fetch: Callable[[], bytes],
        *,
        past_cache: bool,
    ) -> bytes:
        """The index's bytes, from the file or else from `fetch`, whose errors are passed on."""
        name = f"{metadata.start_offset}_{uuid_to_text(metadata.id.id)}{_SUFFIXES[kind]}"
        found = None if past_cache else self._read(name)
        if found is not None:
            return found
        data = fetch()
        self._keep(name, data)
        return data

    def _read(self, name: str) -> bytes | None:
        try:
            with self._lock:
                if not self._is_open() or name not in self._sizes:
                    return None
                self._sizes.move_to_end(name)
                self._used_ms[name] = self._clock.monotonic_ms()
            content = self._disk.read_file(self._directory / name)
        except OSError as error:  # of the file, not of the cache: it is written again
            log.warning("cached index cannot be read and is fetched: %s", error)
            return None
        data = unsealed(name, content)
        if data is None:
            log.warning("cached index is damaged and is fetched: file=%s", self._directory / name)
        return data

    def _keep(self, name: str, data: bytes) -> None:
        content = sealed(name, data)
        try:
            with self._lock:
                if not self._is_open():
                    return
            self._disk.atomic_write(self._directory / name, content)
            with self._lock:
                self._total += len(content) - self._sizes.pop(name, 0)
                self._sizes[name] = len(content)
                self._used_ms[name] = self._clock.monotonic_ms()
                self._evict(name)
        except OSError as error:
            self._failed(error)

    def _is_open(self) -> bool:
        """Make the directory, or adopt the files of an earlier process; the lock is held."""
        if self.failure is not None or self._opened:
            return self.failure is None
        self._disk.make_dirs(self._directory)
        for name in self._disk.list_dir(self._directory):
            path = self._directory / name
            if not name.endswith(tuple(_SUFFIXES.values())):
                self._disk.unlink(path)  # half written, or doomed
                continue
            self._sizes[name] = self._disk.size(path)
            self._total += self._sizes[name]
            self._used_ms[name] = self._clock.monotonic_ms()
        self._opened = True
        return True

    def _failed(self, error: OSError) -> None:
        if is_exhausted(error):
            log.warning("index is not cached: %s", error)
        elif self.failure is None:
            self.failure = str(error)
            log.error(Incident.CACHE_OFF.line(cache="index", error=str(error)))

    def set_bound(self, size_bytes_max: int) -> None:
        """Keep at most `size_bytes_max` from now on."""
        with self._lock:
            self._max = size_bytes_max
            try:
                self._evict("")
            except OSError as error:
                self._failed(error)

    def expire(self) -> None:
        """Remove files that were not used for `ttl_ms`."""
        if self._ttl_ms < 0:
            return
        limit_ms = self._clock.monotonic_ms() - self._ttl_ms
        with self._lock:
            try:
                while self._sizes and self._used_ms[next(iter(self._sizes))] < limit_ms:
                    self._remove_first()
            except OSError as error:
                self._failed(error)

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
