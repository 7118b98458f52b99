"""A sorted map of which successive versions of an image share nearly all.

Entries lie in chunks, each a dict of some hundred neighbours in key order. An editor copies the
list of chunks and the chunks that it changes, so one change among 100,000 entries costs
microseconds. An unchanged chunk is the same object in all versions: results computed over the whole
map can be cached by chunk.

A map iterates in key order, for any history: two nodes, and a repeated simulation, see the
same order.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from itertools import chain
from typing import Any, Final, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
T = TypeVar("T")

CHUNK_ENTRIES_MAX: Final = 512
_SHARED, _OWN, _OWN_UNSORTED = range(3)


class _Items(ItemsView[K, V]):
    _mapping: "SortedMap[K, V]"

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(chunk.items() for chunk in self._mapping.chunks)


class _Values(ValuesView[V]):
    _mapping: "SortedMap[Any, V]"

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(chunk.values() for chunk in self._mapping.chunks)


class SortedMap(Mapping[K, V]):
    """Immutable; keys must be comparable. A key of another type counts as absent.

    Attributes:
        chunks: The entries in order, in pieces; read only.
    """

    __slots__ = ("_bounds", "_size", "chunks")

    def __init__(
        self, bounds: Sequence[K] = (), chunks: Sequence[dict[K, V]] = ({},), size: int = 0
    ) -> None:
        """Take the parts; other modules use `of` or an editor.

        Args:
            bounds: Lowest possible key of each chunk but the first.
            chunks: The entries; an empty map has one empty chunk.
            size: Number of entries.
        """
        self._bounds: Sequence[Any] = bounds
        self.chunks = chunks
        self._size = size

    @classmethod
    def of(cls, entries: Mapping[K, V]) -> "SortedMap[K, V]":
        """Make a map of these entries."""
        editor: SortedMapEditor[K, V] = SortedMapEditor(cls())
        editor.update(entries)
        return editor.map()

    def edit(self) -> "SortedMapEditor[K, V]":
        """Return an editor of the next version."""
        return SortedMapEditor(self)

    def __getitem__(self, key: K) -> V:
        try:
            return self.chunks[bisect_right(self._bounds, key)][key]
        except TypeError:
            raise KeyError(key) from None

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V) -> V: ...
    @overload
    def get(self, key: K, /, default: D) -> V | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        try:
            return self.chunks[bisect_right(self._bounds, key)].get(key, default)
        except TypeError:
            return default

    def __contains__(self, key: object) -> bool:
        try:
            return key in self.chunks[bisect_right(self._bounds, key)]
        except TypeError:
            return False

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.chunks)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"SortedMap({dict(self.items())!r})"

    def items(self) -> ItemsView[K, V]:
        """Entries in the order of their keys."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Values in the order of their keys."""
        return _Values(self)

    def keys_from(self, first: K) -> Iterator[K]:
        """Keys in order from `first` on (inclusive); `first` need not be in the map."""
        at = bisect_right(self._bounds, first)
        low: Any = first
        yield from (key for key in self.chunks[at] if key >= low)
        yield from chain.from_iterable(self.chunks[at + 1 :])


class SortedMapEditor(MutableMapping[K, V]):
    """The next version of a map under construction; iterates unordered."""

    __slots__ = ("_bounds", "_chunks", "_size", "_states")

    def __init__(self, base: SortedMap[K, V]) -> None:
        self._bounds: list[Any] = list(base._bounds)
        self._chunks: list[dict[K, V]] = list(base.chunks)
        self._states = [_SHARED] * len(self._chunks)
        self._size = len(base)

    def map(self) -> SortedMap[K, V]:
        """Return the version made so far; later changes of the editor are not in it."""
        for at, state in enumerate(self._states):
            if state == _OWN_UNSORTED:
                self._chunks[at] = _in_order(self._chunks[at])
        self._states = [_SHARED] * len(self._chunks)
        return SortedMap(tuple(self._bounds), tuple(self._chunks), self._size)

    def __getitem__(self, key: K) -> V:
        return self._chunks[bisect_right(self._bounds, key)][key]

    def __contains__(self, key: object) -> bool:
        return key in self._chunks[bisect_right(self._bounds, key)]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._chunks)

    def __len__(self) -> int:
        return self._size

    def __setitem__(self, key: K, value: V) -> None:
        at = bisect_right(self._bounds, key)
        chunk = self._owned(at)
        if key not in chunk:
            self._size += 1
            if chunk and not _is_after(key, next(reversed(chunk))):
                self._states[at] = _OWN_UNSORTED
        chunk[key] = value
        if len(chunk) > CHUNK_ENTRIES_MAX:
            self._split(at)

    def __delitem__(self, key: K) -> None:
        at = bisect_right(self._bounds, key)
        if key not in self._chunks[at]:
            raise KeyError(key)
        chunk = self._owned(at)
        del chunk[key]
        self._size -= 1
        if len(chunk) < CHUNK_ENTRIES_MAX // 4 and len(self._chunks) > 1:
            self._join(max(at - 1, 0))

    def _owned(self, at: int) -> dict[K, V]:
        if self._states[at] == _SHARED:
            self._chunks[at] = dict(self._chunks[at])
            self._states[at] = _OWN
        return self._chunks[at]

    def _split(self, at: int) -> None:
        entries = list(_in_order(self._chunks[at]).items())
        middle = len(entries) // 2
        self._chunks[at : at + 1] = [dict(entries[:middle]), dict(entries[middle:])]
        self._states[at : at + 1] = [_OWN, _OWN]
        self._bounds.insert(at, entries[middle][0])

    def _join(self, at: int) -> None:
        """Merge a chunk with the next one if the result is small enough."""
        left, right = self._chunks[at], self._chunks[at + 1]
        if left and right and len(left) + len(right) > CHUNK_ENTRIES_MAX // 2:
            return
        self._states[at : at + 2] = [max(_OWN, *self._states[at : at + 2])]
        self._chunks[at : at + 2] = [left | right]
        del self._bounds[at]


def _in_order(chunk: dict[K, V]) -> dict[K, V]:
    key_of: Callable[[tuple[K, V]], Any] = _key_of
    return dict(sorted(chunk.items(), key=key_of))


def _key_of(entry: tuple[Any, Any]) -> Any:
    return entry[0]


def _is_after(key: Any, other: Any) -> bool:
    return bool(key > other)


class Tally(Generic[V]):
    """Sums counts over the values of a map, for version after version.

    Counts of a chunk are cached while the chunk is in the map.
    """

    def __init__(self, count: Callable[[Iterable[V]], Mapping[T, int]]) -> None:
        """Take the function that counts the items in some values."""
        self._count = count
        self._known: dict[int, tuple[Mapping[Any, V], Mapping[Any, int]]] = {}

    def of(self, counted: SortedMap[Any, V]) -> Counter[Any]:
        """Return the counts over all values."""
        known: dict[int, tuple[Mapping[Any, V], Mapping[Any, int]]] = {}
        total: Counter[Any] = Counter()
        for chunk in counted.chunks:
            found = self._known.get(id(chunk)) or (chunk, self._count(chunk.values()))
            known[id(chunk)] = found
            for what, number in found[1].items():
                total[what] += number
        self._known = known
        return total
