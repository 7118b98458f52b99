"""Draws the two tiers of a partition as two bars over one axis of offsets. Pure: text out of facts.

A column stands for a stretch of offsets, the same number for each (give or take one). `first` is
inclusive, `end` is exclusive.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Stretch(NamedTuple):
    """Offsets `[first, end)`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Ink:
    """The characters of a drawing."""

    whole: str
    part: str
    none: str
    down: str
    up: str


UNICODE = Ink("█", "▒", "·", "▼", "▲")
ASCII = Ink("#", "+", ".", "v", "^")


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same offsets as stretches that neither touch nor overlap, ascending."""
    out: list[Stretch] = []
    for one in sorted(stretches):
        if one.first >= one.end:
            continue
        if out and one.first <= out[-1].end:
            out[-1] = Stretch(out[-1].first, max(out[-1].end, one.end))
        else:
            out.append(one)
    return out


def column_of(offset: int, axis: Stretch, width: int) -> int:
    """The column in which an offset lies; offsets outside are at the nearest end."""
    span = axis.end - axis.first
    if span <= 0:
        return 0
    inside = min(max(offset, axis.first), axis.end - 1) - axis.first
    # With more columns than offsets a column stands for a part of one; take its first.
    return inside * width // span


def bar(covered: Iterable[Stretch], axis: Stretch, width: int, ink: Ink = UNICODE) -> str:
    """One tier: for each column whether all, some or none of its offsets are in it."""
    span = axis.end - axis.first
    if span <= 0:
        return ink.none * width
    pieces, at, out = joined(covered), 0, []
    for column in range(width):
        first = axis.first + column * span // width
        end = max(first + 1, axis.first + (column + 1) * span // width)
        while at < len(pieces) and pieces[at].end <= first:
            at += 1
        count, look = 0, at
        while look < len(pieces) and pieces[look].first < end:
            count += min(end, pieces[look].end) - max(first, pieces[look].first)
            look += 1
        out.append(ink.none if not count else ink.whole if count == end - first else ink.part)
    return "".join(out)


def ruler(
    marks: Sequence[tuple[int, str]], axis: Stretch, width: int, pointer: str
) -> tuple[str, str]:
    """Two lines for a bar: letters at their places, and pointers from them to the bar.

    Marks that fall into one column share its pointer and stand side by side, in their order.
    """
    letters, pointers = [" "] * (width + len(marks)), [" "] * width
    for offset, letter in marks:
        place = column_of(offset, axis, width)
        pointers[place] = pointer
        while letters[place] != " ":
            place += 1
        letters[place] = letter
    return "".join(letters).rstrip(), "".join(pointers).rstrip()
