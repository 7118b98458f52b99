"""Decides which sound batches of a damaged segment stay, and under which offsets. Pure.

A batch's checksum covers its records, not its base offset and leader epoch. So a sound batch may
have a wrong offset or epoch. Most batches are right, so the longest run of base offsets that fit
each other is believed. A batch outside of that run gets the offsets that its file position implies.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_CLAIMED, _CONFIRMED = 2, 3
"""Weight of a batch in a run, and of a batch that borders on a neighbour."""


class FoundBatch(NamedTuple):
    """A batch of the file with a valid checksum.

    Attributes:
        position: Its first byte in the file.
        size_bytes: Its size with the header.
        base_offset: From its header; may be wrong.
        offset_count: Number of offsets that it covers.
        epoch: Leader epoch from its header, may be wrong; below 0 is none.
    """

    position: int
    size_bytes: int
    base_offset: int
    offset_count: int
    epoch: int


class KeptBatch(NamedTuple):
    """A batch that stays; its offset and epoch may differ from those in its header."""

    found: FoundBatch
    base_offset: int
    epoch: int


class LostOffsets(NamedTuple):
    """Offsets [first, end) without a batch; a batch without records will cover them."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place, as it is logged.

    Attributes:
        position: Byte of the file where it begins.
        offset: First offset (inclusive) that is affected.
        text: The damage and its repair.
    """

    position: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Salvage:
    """The content that the rewritten segment will have.

    Attributes:
        pieces: In ascending order of offsets.
        damages: In the order of the file; empty if the segment is sound.
    """

    pieces: tuple[KeptBatch | LostOffsets, ...]
    damages: tuple[Damage, ...]


def salvage(
    found: Sequence[FoundBatch], size_bytes: int, *, start: int, limit: int, end: int
) -> Salvage:
    """Plan the content of one segment.

    Args:
        found: Its sound batches, in the order of the file.
        size_bytes: Size of the file; bytes between batches are damage.
        start: Base offset of the segment.
        limit: Every offset of the segment is below this (exclusive).
        end: Known end of the segment's offsets (exclusive). If the file's tail is damaged, missing
            offsets below it count as lost. A sound file that is too short may be an old copy.
    """
    return _Salvager(found, start, limit).decide(size_bytes, end)


class _Salvager:
    """State of one walk over the found batches; used once."""

    def __init__(self, found: Sequence[FoundBatch], start: int, limit: int) -> None:
        self._found, self._limit = found, limit
        self._in_place = _fitting(found, start, limit)
        self._epochs = _epochs(found)
        self._next, self._position = start, 0
        self._pieces: list[KeptBatch | LostOffsets] = []
        self._damages: list[Damage] = []
        self._lost_before = False

    def decide(self, size_bytes: int, end: int) -> Salvage:
        """Plan the segment, see `salvage`."""
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
        """For each batch: base offset of the next believed batch, `limit` if there is none."""
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
    """Return the indexes of the believed batches: the heaviest run without overlaps.

    A batch that borders on a neighbour in the file weighs more. If two batches claim the same
    offsets, the neighbours confirm at most one of them.
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
    """Return the leader epoch of each batch; the longest run that never falls is believed."""
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
    """Finds the heaviest run of ascending, disjoint intervals.

    For each end it keeps only the heaviest run that ends there. It drops a run if another one ends
    at or before the same place and weighs no less.
    """

    def __init__(self, count: int) -> None:
        self._ends: list[int] = []  # ascending, as are the weights
        self._weights: list[int] = []
        self._last: list[int] = []  # the interval that each run ends with
        self._before = [-1] * count

    def add(self, index: int, first: int, end: int, weight: int) -> None:
        """Add interval [first, end); calls come in ascending order of `index`.

        Args:
            index: Number of the interval, as `heaviest` returns it.
            first: The interval may follow a run that ends at or below this.
            end: Exclusive.
            weight: Added to the weight of the run that it follows.
        """
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
        """Return the indexes of the heaviest run's intervals."""
        found, index = set(), self._last[-1] if self._last else -1
        while index >= 0:
            found.add(index)
            index = self._before[index]
        return found
