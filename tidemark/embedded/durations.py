"""Durations as people write them: "8d", "1h30m", "500ms"."""

import re
from datetime import timedelta
from typing import Final

_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART: Final = re.compile(r"(\d{1,12})(ms|[smhdw])")


def duration_ms(duration: "str | timedelta") -> int:
    """Milliseconds of a duration.

    Args:
        duration: a timedelta, or numbers with ms, s, m, h, d or w, such as "8d" or "1h30m".

    Raises:
        ValueError: it is none, or negative.
    """
    if isinstance(duration, timedelta):
        ms = duration // timedelta(milliseconds=1)
        if ms < 0:
            raise ValueError(f"{duration}: time goes forward only")
        return ms
    parts = _PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(
            f"{duration!r} is no duration; write a timedelta, or a text such as '8d', '90m', "
            f"'1h30m' (units: {', '.join(_MS)})"
        )
    return sum(int(number) * _MS[unit] for number, unit in parts)
