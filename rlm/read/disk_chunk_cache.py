"""Chunks on disk that were evicted from memory. Called from pool threads.

Bounded by bytes, and emptied at each start. Bytes that are read back are checked against their
CRC32C, and then like bytes of the store, so nothing here is trusted. (A batch's own checksum does
not cover its base offset.) A disk that fails or is full fails no read: the cache is switched off
until the tier starts again, with one ERROR line and a health reason. If descriptors or memory run
out, only that one chunk is lost.
"""

import logging
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from crc32c import crc32c

from rlm.read.eviction_policy import EvictionPolicy, make_policy
from runtime.disk import Disk, OpenFile
from runtime.disk_errors import is_exhausted
from runtime.incidents import Incident

log = logging.getLogger(__name__)

DIRECTORY = "remote-log-chunk-cache"

ChunkKey = tuple[bytes, int, int]
"""Segment id, and the bytes [first, end) of the segment."""


class _Kept(NamedTuple):
    """A chunk on disk."""

    path: Path
    size_bytes: int
    crc: int


class DiskChunkCache:
    """Numbered files of one chunk each; the chunk of each file is known in memory only."""

    def __init__(self, disk: Disk, directory: Path, size_bytes_max: int, policy: str) -> None:
        """Keep at most `size_bytes_max` under `directory`; 0: keep nothing."""
        self._disk, self._directory, self._max = disk, directory, size_bytes_max
        self._policy: EvictionPolicy[ChunkKey] = make_policy(policy, size_bytes_max)
        self._lock = Lock()
        self._files: dict[ChunkKey, _Kept] = {}
        self._total, self._number = 0, 0
        self._opened = False
        self.failure: str | None = None
        self.evictions = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return self._total

    @property
    def is_on(self) -> bool:
        """True if the cache is used: it has a size, and has not failed."""
        return self._max > 0 and self.failure is None

    def open(self) -> None:
        """Remove files of an earlier process."""
        with self._lock:
            try:
                self._open()
            except OSError as error:
                self._fail(error)

    def _open(self) -> None:
        if self._opened:
            return
        if self.is_on:
            self._disk.make_dirs(self._directory)
        elif not self._disk.exists(self._directory):
            self._opened = True
            return
        for name in self._disk.list_dir(self._directory):
            if name.endswith(".chunk"):
                self._disk.unlink(self._directory / name)
        self._opened = True

    def _fail(self, error: OSError) -> None:
        """Switch the cache off, unless the process ran out of descriptors; the lock is held."""
        if self.failure is not None:
            return
        if is_exhausted(error):
            log.warning("the chunk cache on disk is passed by: %s", error)
            return
        self.failure = str(error)
        log.error(Incident.CACHE_OFF.line(cache="chunk", error=str(error)))
        for kept in self._files.values():
            try:
                self._disk.unlink(kept.path)
            except OSError as left:
                log.warning("cannot remove %s: %s", kept.path, left)
        self._files.clear()
        self._total = 0

    def __contains__(self, key: ChunkKey) -> bool:
        """True if the chunk is here."""
        return key in self._files

    def put(self, key: ChunkKey, source: OpenFile, size_bytes: int) -> None:
        """Keep the first `size_bytes` of a memory file, unless the chunk is here already."""
        if not self.is_on or size_bytes > self._max or key in self._files:
            return
        with self._lock:
            self._number += 1
            path = self._directory / f"{self._number}.chunk"
            try:
                self._open()
                self._evict(size_bytes)
            except OSError as error:
                self._fail(error)
                return
            self._total += size_bytes
        try:
            file = self._disk.open_write(path)
            data = self._disk.read_at(source, 0, size_bytes)
            try:
                self._disk.write_at(file, 0, data)
            finally:
                file.close()
        except OSError as error:
            with self._lock:
                self._not_put(path, size_bytes, error)
            return
        kept = _Kept(path, size_bytes, crc32c(data))
        with self._lock:
            if self.failure is None and key not in self._files:
                self._files[key] = kept
                self._policy.add(key, size_bytes)
                return
            if self.failure is None:  # another thread was faster
                self._total -= size_bytes
            try:
                self._disk.unlink(path)
            except OSError as error:
                self._fail(error)

    def _not_put(self, path: Path, size_bytes: int, error: OSError) -> None:
        """Remove a file that may be incomplete; the lock is held."""
        self._fail(error)
        if self.failure is None:
            self._total -= size_bytes
        try:
            self._disk.unlink(path)
        except OSError as left:
            log.warning("cannot remove %s: %s", path, left)

    def _evict(self, size_bytes: int) -> None:
        while self._files and self._total + size_bytes > self._max:
            self._remove(next(self._policy.victims()))
            self.evictions += 1

    def _remove(self, key: ChunkKey) -> None:
        kept = self._files.pop(key)
        self._policy.remove(key)
        self._total -= kept.size_bytes
        self._disk.unlink(kept.path)

    def read_into(self, key: ChunkKey, view: memoryview) -> bool:
        """Fill `view` with a chunk; False if it is not here or is damaged.

        A damaged chunk is dropped, so that it can be put again.
        """
        try:
            with self._lock:
                found = self._files.get(key)
                if found is None:
                    return False
                self._policy.enter(key)
                file = self._disk.open_read(found.path)
            try:
                is_whole = self._disk.read_into(file, 0, view) == len(view)
            finally:
                file.close()
            is_whole = is_whole and crc32c(view) == found.crc
        except FileNotFoundError:
            is_whole = False  # removed by a person or a program
        except OSError as error:
            with self._lock:
                self._fail(error)
            return False
        if not is_whole:
            self.drop(key)
        return is_whole

    def drop(self, key: ChunkKey) -> None:
        """Remove a chunk whose bytes are wrong."""
        with self._lock:
            if key not in self._files:
                return
            try:
                self._remove(key)
            except OSError as error:
                self._fail(error)
