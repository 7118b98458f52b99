"""Forecasts when a log directory is full, if it continues to fill at its present rate.

Without copies to the remote store no segment of a tiered topic expires locally. Then the disk
bounds the length of an outage, and the forecast uses the last ten minutes.

Otherwise retention frees space, whole segments at a time, and between two of them a disk fills
without a fault. So the forecast uses the last hour, once half of it was observed, and counts only
if the disk is full within a day. A disk with almost no free space is short in any case.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from runtime.clock import Clock
from runtime.disk import Disk
from runtime.health_reasons import HealthReason
from runtime.metrics import Registry

EVERY_MS: Final = 10_000
SPAN_MS: Final = 600_000
"""The present rate is that of so long: several checks of the retention fall into it."""
SPAN_MIN_MS: Final = 60_000
SHOWN_HOURS_MAX: Final = 7 * 24
LONG_SPAN_MS: Final = 3_600_000
"""The rate of so long is that beside retention."""
LONG_SPAN_MIN_MS: Final = 1_800_000
"""A burst of some minutes is no rate."""
WARNED_HOURS_MAX: Final = 24
FREE_PERCENT_MIN: Final = 5
_HOUR_MS: Final = 3_600_000


class Free(NamedTuple):
    """How many bytes of a disk were free at a moment, of how many in all."""

    at_ms: int
    size_bytes: int
    total_bytes: int


class Forecast(NamedTuple):
    """How fast a directory's disk fills, and when it is full at that rate."""

    bytes_per_second: float
    hours: float


def forecast(
    seen: Sequence[Free], now_ms: int, *, span_ms: int = SPAN_MS, least_ms: int = SPAN_MIN_MS
) -> Forecast | None:
    """Forecast when a disk is full, by samples of its free space.

    Args:
        seen: Samples, oldest first.
        now_ms: Monotonic.
        span_ms: Only samples of at most this age count (inclusive).
        least_ms: Shortest time that these samples must cover.

    Returns:
        None if the disk does not fill, or the samples cover too little time.
    """
    recent = [free for free in seen if now_ms - free.at_ms <= span_ms]
    if not recent:
        return None
    first, last = recent[0], recent[-1]
    passed_ms, filled = last.at_ms - first.at_ms, first.size_bytes - last.size_bytes
    if passed_ms < least_ms or filled <= 0:
        return None
    left_ms = last.size_bytes * passed_ms / filled - (now_ms - last.at_ms)
    return Forecast(filled * 1_000 / passed_ms, max(left_ms, 0) / _HOUR_MS)


def shortage(path: Path, seen: Sequence[Free], now_ms: int) -> str:
    """Describe how a disk is short of space beside retention; "" if it is not.

    Args:
        path: The log directory.
        seen: Samples of the free space, oldest first; at least one.
        now_ms: Monotonic.
    """
    free, total = seen[-1].size_bytes, seen[-1].total_bytes
    if free * 100 < total * FREE_PERCENT_MIN:
        return HealthReason.DISK_NEARLY_FULL.line(
            path=path, part=f"{free / total:.1%}", mb=f"{free / 1e6:.0f}"
        )
    found = forecast(seen, now_ms, span_ms=LONG_SPAN_MS, least_ms=LONG_SPAN_MIN_MS)
    if found is None or found.hours > WARNED_HOURS_MAX:
        return ""
    return HealthReason.DISK_FILLS_TODAY.line(
        path=path, hours=f"{found.hours:.1f}", rate=f"{found.bytes_per_second / 1e6:.2f}"
    )


class DiskForecast:
    """Looks at the disks of the log directories now and then, on a pool thread."""

    def __init__(
        self,
        directories: Callable[[], Iterable[Path]],
        disk: Disk,
        clock: Clock,
    ) -> None:
        """Take no sample yet, see `look`.

        Args:
            directories: Log directories that work.
            disk: Source of the samples.
            clock: Of the process.
        """
        self._directories, self._disk, self._clock = directories, disk, clock
        self._seen: dict[Path, tuple[Free, ...]] = {}

    def look(self) -> None:
        """Read the free bytes of each directory; may wait for a disk."""
        seen = {}
        for path in self._directories():
            now_ms = self._clock.monotonic_ms()
            known = self._seen.get(path, ())
            kept = [free for free in known if now_ms - free.at_ms <= LONG_SPAN_MS]
            free, total = self._disk.free_bytes(path), self._disk.total_bytes(path)
            seen[path] = (*kept, Free(now_ms, free, total))
        self._seen = seen  # whole: the loop reads it

    def problems(self) -> list[str]:
        """For health, while nothing expires: a line for each directory full within a week."""
        return [
            HealthReason.DISK_FILLS.text(
                path=path, hours=f"{found.hours:.1f}", rate=f"{found.bytes_per_second / 1e6:.2f}"
            )
            for path, found in self._forecasts().items()
            if found is not None and found.hours <= SHOWN_HOURS_MAX
        ]

    def warnings(self) -> list[str]:
        """For health, beside retention: a line for each directory that is short of room."""
        now_ms = self._clock.monotonic_ms()
        return [text for path, seen in self._seen.items() if (text := shortage(path, seen, now_ms))]

    def register(self, metrics: Registry) -> None:
        """Show the free space of each directory's disk, and the hours until it is full."""
        metrics.gauge(
            "tidemark_log_dir_free_bytes",
            "Bytes that are free on a log directory's disk",
            ("logDirectory",),
            lambda: {(str(path),): seen[-1].size_bytes for path, seen in self._seen.items()},
        )
        metrics.gauge(
            "tidemark_log_dir_hours_until_full",
            "Hours until a log directory's disk is full at the rate of the last ten minutes",
            ("logDirectory",),
            lambda: {
                (str(path),): float("inf") if found is None else found.hours
                for path, found in self._forecasts().items()
            },
        )

    def _forecasts(self) -> dict[Path, Forecast | None]:
        now_ms = self._clock.monotonic_ms()
        return {path: forecast(seen, now_ms) for path, seen in self._seen.items()}
