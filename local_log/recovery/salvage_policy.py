"""Which of the sound batches of a damaged segment stay, and under which offsets. Pure.

A batch's checksum covers its records, not its base offset and leader epoch. So a batch may be sound
and claim a place where it cannot be. Most batches are right: the longest run of places that fit
each other is believed, and a batch outside of it is taken to lie where it stands in the file.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_CLAIMED, _CONFIRMED = 2, 3
"""The weight of a place, and the weight of one that fits a neighbour's."""


class FoundBatch(NamedTuple):
    """A sound batch, as the file has it.

    Attributes:
        position: its first byte.
        size_bytes: of it.
        base_offset: as it claims.
        offset_count: how many offsets it covers.
        epoch: leader epoch as it claims; below 0: none.
    """

    position: int
    size_bytes: int
    base_offset: int
    offset_count: int
    epoch: int


class KeptBatch(NamedTuple):
    """A batch that stays, under an offset and an epoch that may not be those it claims."""

    found: FoundBatch
    base_offset: int
    epoch: int


class LostOffsets(NamedTuple):
    """Offsets [first, end) that no batch has any more; a batch without records takes them."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that was wrong, for people.

    Attributes:
        position: byte of the file where it begins.
        offset: the first offset that it concerns.
        text: what it is, and what became of it.
    """

    position: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Salvage:
    """The target form of the segment.

    Attributes:
        pieces: in their order.
        damages: in the order of the file; empty where the segment is sound.
    """

    pieces: tuple[KeptBatch | LostOffsets, ...]
    damages: tuple[Damage, ...]


def salvage(
    found: Sequence[FoundBatch], size_bytes: int, *, start: int, limit: int, end: int
) -> Salvage:
    """Decide over one segment.

    Args:
        found: its sound batches, in the order of the file.
        size_bytes: of the file; bytes between batches are damage.
        start: its base offset.
        limit: its offsets are below this.
        end: up to here (exclusive) it reached, as far as is known. Only where its tail is damaged
            are offsets below it taken for lost: a sound file that is too short may be an old copy.
    """
    return _Salvager(found, start, limit).decide(size_bytes, end)


class _Salvager:
    """Used once."""

    def __init__(self, found: Sequence[FoundBatch], start: int, limit: int) -> None:
        self._found, self._limit = found, limit
        self._in_place = _fitting(found, start, limit)
        self._epochs = _epochs(found)
        self._next, self._position = start, 0
        self._pieces: list[KeptBatch | LostOffsets] = []
        self._damages: list[Damage] = []
        self._lost_before = False

    def decide(self, size_bytes: int, end: int) -> Salvage:
        """Walk over the file."""
        free = self._free()
        for index, one in enumerate(self._found):
            self._skip_to(one.position)
            self._take(index, one, free[index])
            self._position = one.position + one.size_bytes
        self._skip_to(size_bytes)
        if self._lost_before:
            self._fill(end)
        return Salvage(tuple(self._pieces), tuple(self._damages))

    def _free(self) -> list[int]:
        """For each batch, where the next one begins that is in its place."""
        free, following = [], self._limit
        for index in range(len(self._found) - 1, -1, -1):
            free.append(following)
            if index in self._in_place:
                following = self._found[index].base_offset
        return free[::-1]

    def _skip_to(self, position: int) -> None:
        if position > self._position:
            count = position - self._position
            self._damaged(self._position, f"{count} bytes are no batch, and are excluded")
            self._lost_before = True

    def _take(self, index: int, one: FoundBatch, free: int) -> None:
        base, epoch = one.base_offset, self._epochs[index]
        if index not in self._in_place:
            if self._next + one.offset_count > free:
                self._damaged(
                    one.position,
                    f"a batch claims to begin at offset {base}, and there is no room for it: "
                    "it is excluded",
                )
                self._lost_before = True
                return
            base = self._next
            self._damaged(
                one.position,
                f"a batch claims to begin at offset {one.base_offset}, which cannot be: "
                f"it begins at {base}",
            )
        elif self._lost_before:
            self._fill(base)
        if epoch != one.epoch:
            self._damaged(one.position, f"a batch claims leader epoch {one.epoch}: it has {epoch}")
        self._pieces.append(KeptBatch(one, base, epoch))
        self._next = base + one.offset_count
        self._lost_before = False

    def _fill(self, end: int) -> None:
        if self._next < end:
            self._pieces.append(LostOffsets(self._next, end))
            self._next = end

    def _damaged(self, position: int, text: str) -> None:
        self._damages.append(Damage(position, self._next, text))


def _fitting(found: Sequence[FoundBatch], start: int, limit: int) -> set[int]:
    """The heaviest run of batches whose places ascend without touching each other, by index.

    A batch that begins where its neighbour ends weighs more: only one of two places that exclude
    each other is confirmed so.
    """
    runs = _Runs(len(found))
    for index, one in enumerate(found):
        end = one.base_offset + one.offset_count
        if one.base_offset < start or end > limit:
            continue
        before = found[index - 1].base_offset + found[index - 1].offset_count if index else start
        after = found[index + 1].base_offset if index + 1 < len(found) else limit
        is_confirmed = one.base_offset == before or end == after
        runs.add(index, one.base_offset, end, _CONFIRMED if is_confirmed else _CLAIMED)
    return runs.heaviest()


def _epochs(found: Sequence[FoundBatch]) -> list[int]:
    """The leader epoch of each batch: the longest run that never falls is believed."""
    runs = _Runs(len(found))
    for index, one in enumerate(found):
        if one.epoch >= 0:
            runs.add(index, one.epoch, one.epoch, 1)
    believed = runs.heaviest()
    epochs, known = [], min((found[index].epoch for index in believed), default=-1)
    for index, one in enumerate(found):
        known = one.epoch if index in believed else known
        epochs.append(one.epoch if one.epoch < 0 else known)
    return epochs


class _Runs:
    """Runs of intervals that ascend: by their ends the heaviest ones, no more than are of use."""

    def __init__(self, count: int) -> None:
        self._ends: list[int] = []  # ascending, as are the weights
        self._weights: list[int] = []
        self._last: list[int] = []  # the interval that each run ends with
        self._before = [-1] * count

    def add(self, index: int, first: int, end: int, weight: int) -> None:
        """Take interval `index`, which may follow those that end at `first` or below."""
        at = bisect_right(self._ends, first) - 1
        if at >= 0:
            self._before[index] = self._last[at]
            weight += self._weights[at]
        at = bisect_right(self._ends, end)
        if at and self._weights[at - 1] >= weight:
            return
        stop = at
        while stop < len(self._ends) and self._weights[stop] <= weight:
            stop += 1
        at -= bool(at and self._ends[at - 1] == end)
        self._ends[at:stop] = [end]
        self._weights[at:stop] = [weight]
        self._last[at:stop] = [index]

    def heaviest(self) -> set[int]:
        """The intervals of the heaviest run."""
        found, index = set(), self._last[-1] if self._last else -1
        while index >= 0:
            found.add(index)
            index = self._before[index]
        return found
