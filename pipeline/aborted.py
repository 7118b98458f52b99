"""Aborted transactions as readers of rows need them: ranges of offsets, packed to travel.

A segment may hold 100,000 of them, and every cut of the segment must know all: pieces that are cut
at nominal bytes do not know their offsets. So they travel as a few bytes each, not as tuples. Must
not know: NumPy, stores.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from struct import pack, unpack
from typing import NamedTuple, Self

_DEFLATED_FROM = 64
"""So many ranges, and deflating them is worth its time."""
_NUMBER_BYTES = 8


class AbortedRange(NamedTuple):
    """Transactional records of this producer are excluded; both offsets are inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class AbortedRanges:
    """Ranges, ascending by first offset.

    Attributes:
        count: how many.
        packed: what `columns` gives, deflated where there are many.
    """

    count: int = 0
    packed: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, ranges: Iterable[AbortedRange]) -> Self:
        """Pack ranges that are given in any order."""
        rising = sorted(ranges, key=lambda one: (one.first_offset, one.last_offset))
        plain = pack(f"<{3 * len(rising)}q", *chain.from_iterable(zip(*rising, strict=True)))
        if len(rising) < _DEFLATED_FROM:
            return cls(len(rising), plain)
        # The first bytes of all numbers, the second ones, ...: the high ones are nearly all alike.
        by_weight = b"".join(plain[at::_NUMBER_BYTES] for at in range(_NUMBER_BYTES))
        return cls(len(rising), zlib.compress(by_weight, 1))

    def __len__(self) -> int:
        """How many."""
        return self.count

    def __iter__(self) -> Iterator[AbortedRange]:
        """All, ascending by first offset."""
        count, numbers = self.count, unpack(f"<{3 * self.count}q", self.columns())
        return map(AbortedRange, numbers[:count], numbers[count : 2 * count], numbers[2 * count :])

    def columns(self) -> bytes:
        """All producer ids, all first offsets, all last offsets: 8 bytes each, little-endian."""
        if self.count < _DEFLATED_FROM:
            return self.packed
        by_weight = zlib.decompress(self.packed)
        each = 3 * self.count
        plain = bytearray(len(by_weight))
        for at in range(_NUMBER_BYTES):
            plain[at::_NUMBER_BYTES] = by_weight[at * each : (at + 1) * each]
        return bytes(plain)
