"""The order in which cached chunks are evicted. Pure: keys and sizes only.

A chunk is *entered* when a reader reaches it: once per reader, however many fetches it takes to
read it.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar

from runtime.override import override

K = TypeVar("K", bound=Hashable)

PROTECTED_SHARE = 0.5
UNREAD_SHARE = 0.5


class EvictionPolicy(Protocol[K]):
    """Keeps the order of the cached keys; the caller evicts, and reports that by `remove`."""

    def add(self, key: K, size_bytes: int) -> None:
        """Note a key that is cached now, and was not before."""
        ...

    def enter(self, key: K) -> None:
        """Note that a reader has reached the key."""
        ...

    def remove(self, key: K, *, evicted: bool = True) -> None:
        """Note that the key is not cached any more; with `evicted` it made room for another."""
        ...

    def victims(self) -> Iterator[K]:
        """All keys, in the order of eviction; the policy must not change meanwhile."""
        ...


class LruPolicy(EvictionPolicy[K]):
    """Evicts the least recently used key first. One reader of a whole log empties the cache."""

    def __init__(self) -> None:
        self._order: OrderedDict[K, int] = OrderedDict()

    @override
    def add(self, key: K, size_bytes: int) -> None:
        self._order[key] = size_bytes

    @override
    def enter(self, key: K) -> None:
        self._order.move_to_end(key)

    @override
    def remove(self, key: K, *, evicted: bool = True) -> None:
        del self._order[key]

    @override
    def victims(self) -> Iterator[K]:
        return iter(self._order)


class ScanResistantPolicy(EvictionPolicy[K]):
    """Chunks read by two or more readers are protected from eviction by one-pass scans.

    A new key is *unread* until a reader reaches it, then *on probation*, and with a second reader
    *protected*. Eviction takes keys on probation first, first in first out: they were read by one
    reader only. Protected keys are next, the least recently entered first. They have at most half
    of the capacity; beyond that they return to probation. Unread keys are last, since a reader is
    expected soon. If they exceed their share, the oldest of them are evicted before all others: no
    reader has come.

    Keys that were evicted from probation are remembered, up to one capacity of bytes. A key that is
    loaded again within that time has several readers, and is protected with its first one. Source:
    segmented LRU (Karedla and others, 1994) with the ghost queue of 2Q (Johnson and Shasha, 1994);
    the separate unread keys are ours.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._unread, self._probation = _Queue[K](), _Queue[K]()
        self._protected, self._ghosts = _Queue[K](), _Queue[K]()
        self._returned: set[K] = set()  # unread keys that were ghosts

    @override
    def add(self, key: K, size_bytes: int) -> None:
        self._unread.push(key, size_bytes)
        if key in self._ghosts.sizes:
            self._ghosts.pop(key)
            self._returned.add(key)

    @override
    def enter(self, key: K) -> None:
        if key in self._protected.sizes:
            self._protected.sizes.move_to_end(key)
        elif key in self._probation.sizes:
            self._protected.push(key, self._probation.pop(key))
        elif key in self._returned:
            self._returned.discard(key)
            self._protected.push(key, self._unread.pop(key))
        else:
            self._probation.push(key, self._unread.pop(key))
        while self._protected.total > self._capacity * PROTECTED_SHARE:
            if len(self._protected.sizes) == 1:
                break
            self._probation.push(*self._protected.pop_first())

    @override
    def remove(self, key: K, *, evicted: bool = True) -> None:
        self._returned.discard(key)
        for queue in (self._unread, self._protected):
            if key in queue.sizes:
                queue.pop(key)
                return
        size_bytes = self._probation.pop(key)
        if evicted:
            self._ghosts.push(key, size_bytes)
            while self._ghosts.total > self._capacity:
                self._ghosts.pop_first()

    @override
    def victims(self) -> Iterator[K]:
        excess, forgotten = self._unread.total - int(self._capacity * UNREAD_SHARE), 0
        for size_bytes in self._unread.sizes.values():
            if excess <= 0:
                break
            excess -= size_bytes
            forgotten += 1
        unread = self._unread.sizes
        yield from islice(unread, forgotten)
        yield from self._probation.sizes
        yield from self._protected.sizes
        yield from islice(unread, forgotten, None)


class _Queue(Generic[K]):
    """Keys in order, with their sizes and the sum of these."""

    __slots__ = ("sizes", "total")

    def __init__(self) -> None:
        self.sizes: OrderedDict[K, int] = OrderedDict()
        self.total = 0

    def push(self, key: K, size_bytes: int) -> None:
        self.sizes[key] = size_bytes
        self.total += size_bytes

    def pop(self, key: K) -> int:
        size_bytes = self.sizes.pop(key)
        self.total -= size_bytes
        return size_bytes

    def pop_first(self) -> tuple[K, int]:
        key, size_bytes = self.sizes.popitem(last=False)
        self.total -= size_bytes
        return key, size_bytes


POLICIES = ("scan-resistant", "lru")


def make_policy(name: str, capacity_bytes: int) -> EvictionPolicy[K]:
    """The policy of a name in `POLICIES`."""
    assert name in POLICIES, name
    return LruPolicy() if name == "lru" else ScanResistantPolicy(capacity_bytes)
