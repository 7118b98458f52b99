"""Places in a topic as a user types them, and the offsets that they mean. Pure.

A place is a word, an offset, a distance from the end, or a time. Kafka's words and kcat's are both
known: `earliest` is `beginning`, `latest` is `end`, `end-10` is `-10`. A time without a zone is in
UTC, as Kafka's tools take it; a duration is `2h`, `-2h` or, as ISO 8601 has it, `PT2H`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from kafka_protocol.errors import TidemarkError

ALLOWED: Final = (
    "allowed is earliest, latest, end-10, an offset, 2026-01-31T12:00:00Z or -2h (two hours ago)"
)
_EARLIEST: Final = ("earliest", "beginning")
_LATEST: Final = ("latest", "end")
_FROM_END: Final = re.compile(r"(?:end|latest)?-(\d{1,18})", re.ASCII)
_DURATION: Final = re.compile(r"-?(\d{1,9})(ms|s|m|h|d)", re.ASCII)
_ISO_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?", re.ASCII
)
_UNITS_MS: Final[Mapping[str, int]] = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_KCAT_TIME: Final = re.compile(r"s@(\d{1,18})", re.ASCII)
_OFFSET_DIGITS_MAX: Final = 18
_NAMED_MAX: Final = 5


class PlaceError(TidemarkError, ValueError):
    """A place is none, or no partition has it."""


class Word(Enum):
    """A place that each partition has."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class FromEnd:
    """So many offsets before the end of each partition; what it does not hold is excluded."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not earlier; in milliseconds since 1970."""

    ms: int


Place = Word | int | FromEnd | AtTime


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a partition: from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Starts:
    """Where to begin.

    Attributes:
        offsets: by partition.
        excluded: partitions that do not hold the offset, and what they hold.
    """

    offsets: Mapping[int, int]
    excluded: Mapping[int, Bounds] = field(default_factory=dict)


def parse_place(text: str, now_ms: int) -> Place:
    """Read a place.

    Args:
        text: what was typed.
        now_ms: since 1970; `-2h` is counted from it.

    Raises:
        PlaceError: it is none; says what is allowed.
    """
    if text in _EARLIEST:
        return Word.EARLIEST
    if text in _LATEST:
        return Word.LATEST
    if text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS_MAX:
        return int(text)
    if found := _FROM_END.fullmatch(text):
        return FromEnd(int(found[1]))
    if (ago_ms := _duration_ms(text)) is not None:
        return AtTime(max(0, now_ms - ago_ms))
    if found := _KCAT_TIME.fullmatch(text):
        return AtTime(int(found[1]))
    return AtTime(parse_time_ms(text, ALLOWED))


def parse_time_ms(text: str, allowed: str = "must be a time such as 2026-01-31T12:00:00Z") -> int:
    """Read a time of ISO 8601; UTC where it has no zone.

    Args:
        text: what was typed.
        allowed: for the error.

    Returns:
        Milliseconds since 1970, rounded up: a record of the millisecond in which the time lies is
        earlier.

    Raises:
        PlaceError: it is none.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise PlaceError(f"{text[:100]!r}: {allowed}") from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return -(-int(at.timestamp() * 1_000_000) // 1_000)


def parse_duration_ms(text: str) -> int:
    """Read a duration: 2h, -2h or PT2H.

    Raises:
        PlaceError: it is none.
    """
    found = _duration_ms(text)
    if found is None:
        raise PlaceError(f"{text[:100]!r}: must be a duration such as 2h or P7D")
    return found


def _duration_ms(text: str) -> int | None:
    if found := _DURATION.fullmatch(text):
        return int(found[1]) * _UNITS_MS[found[2]]
    iso = _ISO_DURATION.fullmatch(text)
    counts = zip("dhms", iso.groups(), strict=True) if iso else ()
    parts = [int(count) * _UNITS_MS[unit] for unit, count in counts if count]
    return sum(parts) if parts else None


def datetime_of(place: AtTime) -> datetime:
    """The time in UTC.

    Raises:
        PlaceError: it lies behind the year 9999.
    """
    try:
        return datetime.fromtimestamp(place.ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        raise PlaceError(f"{place.ms} ms after 1970 is no time of a calendar") from None


def starts(
    topic: str, place: Place, held: Mapping[int, Bounds], at_times: Mapping[int, int]
) -> Starts:
    """Say where to begin in each partition.

    Args:
        topic: for messages.
        place: what the user asks for.
        held: what each partition holds that is to be read.
        at_times: of a time: the offset of its first record; no entry: no record is as late.

    Returns:
        An offset for each partition that holds the place. An offset is held also where it is the
        end: the next record that is written has it.

    Raises:
        PlaceError: an offset lies outside of every partition.
    """
    if not isinstance(place, int):
        return Starts({one: _start(place, held[one], at_times.get(one)) for one in held})
    here = {one: place for one, bounds in held.items() if bounds.start <= place <= bounds.end}
    excluded = {one: bounds for one, bounds in held.items() if one not in here}
    if held and not here:
        raise PlaceError(f"offset {place} is out of range: {describe(topic, held)}")
    return Starts(here, excluded)


def _start(place: Word | FromEnd | AtTime, held: Bounds, at_time: int | None) -> int:
    match place:
        case Word.EARLIEST:
            return held.start
        case Word.LATEST:
            return held.end
        case FromEnd(count):
            return max(held.start, held.end - count)
        case AtTime():
            return held.end if at_time is None else max(held.start, at_time)


def describe(topic: str, held: Mapping[int, Bounds]) -> str:
    """The bounds of partitions, in a few words: a sentence's second half."""
    shown = [
        f"{topic}-{one} is empty at offset {bounds.end}"
        if bounds.start >= bounds.end
        else f"{topic}-{one} holds {bounds.start} to {bounds.end - 1}"
        for one, bounds in sorted(held.items())[:_NAMED_MAX]
    ]
    more = len(held) - len(shown)
    return ", ".join(shown) + (f", and {more} more" if more else "")
