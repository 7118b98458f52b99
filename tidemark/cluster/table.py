"""Tables for people: aligned columns within the width of a terminal. Pure.

A line of cells stays one line where there is no terminal, so that programs can cut it.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

_GAP: Final = 2
_NARROWEST: Final = 8
NONE: Final = "-"
"""The text for a missing value, as in Kafka's tools."""


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    width: int | None,
    whole: Collection[str] = (),
) -> str:
    """Lines with two spaces between the columns; numbers stand to the right.

    Args:
        columns: their names.
        rows: cells; None is shown as "-".
        width: columns of the terminal: the widest cells are folded until lines fit, as far as they
            can. None: there is none, and nothing is folded.
        whole: columns that are never folded: somebody will copy what stands there.
    """
    cells = [[plain(NONE if one is None else str(one)) for one in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    if width is not None:
        _narrow(widths, columns, width, whole)
    is_number = [
        all(_is_number(one) for one in column) and bool(column)
        for column in (zip(*cells, strict=True) if cells else [()] * len(columns))
    ]
    lines = [
        (" " * _GAP)
        .join(
            part.rjust(size) if right else part.ljust(size)
            for part, size, right in zip(parts, widths, is_number, strict=True)
        )
        .rstrip()
        for line in (columns, *cells)
        for parts in _folded(line, widths)
    ]
    return "".join(f"{line}\n" for line in lines)


def fields(pairs: Iterable[tuple[str, object]], width: int | None) -> str:
    """`Name: value` after one another, on as many lines as the width asks for.

    Args:
        pairs: names with values; None is shown as "-".
        width: columns of the terminal: what is longer continues, after a comma where there is one.
            None: there is none, and it is one line.
    """
    lines: list[str] = []
    for name, value in pairs:
        text = f"{name}: {plain(NONE if value is None else str(value))}".rstrip()
        if lines and (width is None or len(lines[-1]) + _GAP + len(text) <= width):
            lines[-1] += " " * _GAP + text
            continue
        lines.append(text if not lines else " " * _GAP + text)
        while width is not None and len(lines[-1]) > width:
            cut = lines[-1].rfind(",", 2 * _GAP, width) + 1 or width
            lines[-1:] = lines[-1][:cut], " " * 2 * _GAP + lines[-1][cut:]
    return "".join(f"{line}\n" for line in lines)


def plain(text: str) -> str:
    """Show what does not print as escapes: names of groups and clients may hold anything."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _narrow(widths: list[int], columns: Sequence[str], width: int, whole: Collection[str]) -> None:
    """Take from the widest column, again and again, until a line fits."""
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        least = [max(_NARROWEST, len(name)) for name in columns]
        spare = [
            0 if name in whole else have - need
            for name, have, need in zip(columns, widths, least, strict=True)
        ]
        widest = max(
            (at for at, one in enumerate(spare) if one > 0), key=widths.__getitem__, default=-1
        )
        if widest < 0:
            return
        widths[widest] -= 1


def _folded(line: Sequence[str], widths: Sequence[int]) -> Iterable[Sequence[str]]:
    """A line as the lines that its longest cell needs."""
    pieces = [
        [cell[at : at + size] for at in range(0, len(cell), size)] or [""]
        for cell, size in zip(line, (max(one, 1) for one in widths), strict=True)
    ]
    for number in range(max(map(len, pieces))):
        yield [one[number] if number < len(one) else "" for one in pieces]


def _is_number(text: str) -> bool:
    return text == NONE or text.removeprefix("-").isdecimal()
