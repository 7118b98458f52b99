"""Bounds of the chunk memory that the broker holds for its clients' connections.

A leased chunk stays in memory until the broker has sent its bytes and releases it, which depends on
the client's speed. Three rules keep room for other clients when some do not read:

1. All leases together are at most `LEASED_SHARE` of the cache. The rest is for loads.
2. One connection holds at most an equal share of that, among the connections that hold something.
   At least `CHUNKS_MIN` chunks are always permitted.
3. If nothing is left to lease, a connection that holds nothing gets a copy of a few batches outside
   the cache. It continues slowly, and all copies together are small.

Belongs to the owner's thread.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from rlm.read.chunk import Chunk
from rlm.read.chunk_cache import ChunkCache
from rlm.read.index_cache import IndexCache
from rlm.read.loads import Loads
from rlm.read.wait_queue import Waiter, WaitQueue
from runtime.scheduler import Scheduler

LEASED_SHARE = 3 / 4
READ_AHEAD_SHARE = 3 / 8
"""Share of the cache for answers beyond the requested bytes."""

CHUNKS_MIN = 2
COPY_BYTES_MAX = 64 * 1024
"""Bound of a copy; one larger batch is permitted."""


class Verdict(Enum):
    """Permission of a connection for a chunk."""

    LEASE = "the chunk"
    COPY = "a copy of a few batches"
    WAIT = "nothing before it gives something back"


@dataclass(slots=True)
class _Holder:
    """A connection that holds something, or waits until it may.

    Attributes:
        chunks: Number of leases by token of the chunk.
        copies: Number of leased copies.
        size_bytes: Bytes of both.
    """

    queue: WaitQueue
    chunks: Counter[int] = field(default_factory=Counter)
    copies: int = 0
    size_bytes: int = 0

    @property
    def holds(self) -> int:
        """Number of chunks and copies."""
        return len(self.chunks) + self.copies


@dataclass(frozen=True, slots=True)
class _Lease:
    """One lease; `chunk` is None for a copy."""

    holder: str
    chunk: Chunk | None
    size_bytes: int


class Leases:
    """All leases, by connection.

    Attributes:
        copied_bytes: Bytes of the copies that the broker holds.
    """

    def __init__(self, chunks: ChunkCache, cache_bytes: int, scheduler: Scheduler) -> None:
        self._chunks, self._scheduler = chunks, scheduler
        self._leased_max = int(cache_bytes * LEASED_SHARE)
        self._read_ahead_max = int(cache_bytes * READ_AHEAD_SHARE)
        self._leases: dict[int, _Lease] = {}
        self._holders: dict[str, _Holder] = {}
        self._next = 0
        self.copied_bytes = 0

    def __len__(self) -> int:
        """Number of connections that hold something, or wait until they may."""
        return len(self._holders)

    # -- permission

    def verdict(self, holder: str, chunk: Chunk) -> Verdict:
        """Present permission of a connection for a chunk."""
        known = self._holders.get(holder)
        if known is not None and chunk.token in known.chunks:
            return Verdict.LEASE
        held_bytes = self._chunks.held_bytes
        added_bytes = 0 if chunk.handed_out else chunk.capacity_bytes
        # One chunk larger than the bound of all leases must be readable, too.
        has_memory = not held_bytes or held_bytes + added_bytes <= self._leased_max
        if known is None or not known.holds:
            return Verdict.LEASE if has_memory else Verdict.COPY
        is_within = known.size_bytes + chunk.size_bytes <= self._share(known)
        if has_memory and (is_within or known.holds < CHUNKS_MIN):
            return Verdict.LEASE
        return Verdict.WAIT

    def free_bytes(self, holder: str) -> int:
        """Bytes of further chunks that the connection may hold."""
        known = self._holders.get(holder)
        own = self._share(known) - (0 if known is None else known.size_bytes)
        return max(0, min(own, self._leased_max - self._chunks.held_bytes))

    def free_read_ahead_bytes(self, holder: str) -> int:
        """The same for an answer beyond the requested bytes.

        Only half of the share: a connection may read other partitions, too.
        """
        known = self._holders.get(holder)
        own = self._share(known) // 2 - (0 if known is None else known.size_bytes)
        return max(0, min(own, self._read_ahead_max - self._chunks.held_bytes))

    def _share(self, known: _Holder | None) -> int:
        return self._leased_max // (len(self._holders) + (known is None))

    # -- leasing

    def lease(self, holder: str, chunk: Chunk) -> int:
        """Lease a chunk to the broker; returns the token that it sends back for the release."""
        known = self._known(holder)
        if chunk.token not in known.chunks:
            known.size_bytes += chunk.size_bytes
        known.chunks[chunk.token] += 1
        self._chunks.hand_out(chunk)
        return self._lease(_Lease(holder, chunk, chunk.size_bytes))

    def lease_copy(self, holder: str, size_bytes: int) -> int:
        """Lease bytes outside the cache to the broker; returns a token as `lease` does."""
        known = self._known(holder)
        known.copies += 1
        known.size_bytes += size_bytes
        self.copied_bytes += size_bytes
        return self._lease(_Lease(holder, None, size_bytes))

    def _lease(self, lease: _Lease) -> int:
        self._next += 1
        self._leases[self._next] = lease
        return self._next

    def released(self, tokens: list[int]) -> None:
        """End leases that the broker has released, and call the waiters of their connections."""
        for token in tokens:
            lease = self._leases.pop(token, None)
            if lease is None:
                continue
            known = self._holders[lease.holder]
            self._take_back(known, lease)
            known.queue.call()
            self._forget_if_idle(lease.holder, known)

    def _take_back(self, known: _Holder, lease: _Lease) -> None:
        chunk = lease.chunk
        if chunk is None:
            known.copies -= 1
            known.size_bytes -= lease.size_bytes
            self.copied_bytes -= lease.size_bytes
            return
        self._chunks.take_back(chunk)
        known.chunks[chunk.token] -= 1
        if not known.chunks[chunk.token]:
            del known.chunks[chunk.token]
            known.size_bytes -= lease.size_bytes

    # -- waiting

    def wait(self, holder: str, waiter: Waiter) -> None:
        """Call `waiter` when the connection has released something."""
        self._known(holder).queue.join(waiter)

    def leave(self, holder: str, waiter: Waiter) -> None:
        """Do not call `waiter` any more; it need not be waiting."""
        known = self._holders.get(holder)
        if known is not None:
            known.queue.leave(waiter)
            self._forget_if_idle(holder, known)

    def _known(self, holder: str) -> _Holder:
        known = self._holders.get(holder)
        if known is None:
            known = self._holders[holder] = _Holder(WaitQueue(self._scheduler))
        return known

    def _forget_if_idle(self, holder: str, known: _Holder) -> None:
        if not known.holds and not len(known.queue) and self._holders.get(holder) is known:
            del self._holders[holder]


@dataclass(frozen=True, slots=True)
class Caches:
    """The cached indexes and chunks, the running loads, and the leases."""

    indexes: IndexCache
    chunks: ChunkCache
    loads: Loads
    leases: Leases
