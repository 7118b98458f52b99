"""When a disk is full, by what was seen of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.observe.disk_forecast import (
    EVERY_MS,
    FREE_PERCENT_MIN,
    LONG_SPAN_MIN_MS,
    LONG_SPAN_MS,
    SHOWN_HOURS_MAX,
    SPAN_MIN_MS,
    SPAN_MS,
    WARNED_HOURS_MAX,
    DiskForecast,
    Free,
    forecast,
    shortage,
)
from runtime.disk import Disk
from runtime.metrics import Registry
from tests.support.sim.clock import ManualClock

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
GB = 10**9
TOTAL = 200_000 * GB


def at(at_ms: int, free_bytes: int) -> Free:
    return Free(at_ms, free_bytes, TOTAL)


class Disks(Disk):
    """What is free, by log directory."""

    def __init__(self, free: dict[Path, int], total: int = GB) -> None:
        super().__init__()
        self._free, self._total = free, total

    def free_bytes(self, path: Path) -> int:
        return self._free[path]

    def total_bytes(self, path: Path) -> int:
        return self._total


def test_what_fills_is_full_when_what_is_left_has_gone_at_the_same_rate() -> None:
    seen = [at(0, 100 * GB), at(5 * MINUTE_MS, 99 * GB)]
    found = forecast(seen, 5 * MINUTE_MS)
    assert found is not None
    assert found.bytes_per_second == pytest.approx(GB / 300)
    assert found.hours == pytest.approx(99 * 5 / 60)
    later = forecast(seen, 8 * MINUTE_MS)
    assert later is not None
    assert later.hours == pytest.approx((99 * 5 - 3) / 60)


@pytest.mark.parametrize(
    "seen",
    [
        [],
        [at(0, GB)],
        [at(0, GB), at(SPAN_MIN_MS - 1, 0)],
        [at(0, GB), at(2 * MINUTE_MS, GB)],
        [at(0, GB), at(MINUTE_MS, GB // 2), at(2 * MINUTE_MS, 2 * GB)],
    ],
)
def test_what_is_unknown_or_does_not_fill_has_no_end(seen: list[Free]) -> None:
    assert forecast(seen, 3 * MINUTE_MS) is None


def test_only_the_last_minutes_count() -> None:
    long_ago = [at(0, 500 * GB), at(MINUTE_MS, 101 * GB)]
    seen = [*long_ago, at(SPAN_MS + 2 * MINUTE_MS, 100 * GB), at(SPAN_MS + HOUR_MS, 98 * GB)]
    assert forecast(seen, SPAN_MS + HOUR_MS) is None, "one moment is no rate"
    seen.insert(-1, at(SPAN_MS + HOUR_MS - SPAN_MS // 2, 99 * GB))
    found = forecast(seen, SPAN_MS + HOUR_MS)
    assert found is not None
    assert found.hours == pytest.approx(98 * 5 / 60)


def test_a_full_disk_is_full_now() -> None:
    found = forecast([at(0, GB), at(MINUTE_MS, 0)], 2 * MINUTE_MS)
    assert found is not None
    assert found.hours == 0


@pytest.fixture
def free() -> dict[Path, int]:
    return {Path("/a"): 1_000 * GB, Path("/b"): 1_000 * GB}


def test_the_directories_that_fill_within_a_week_are_named(free: dict[Path, int]) -> None:
    clock, metrics = ManualClock(), Registry()
    watch = DiskForecast(lambda: list(free), Disks(free), clock)
    watch.register(metrics)
    for _ in range(3 * SPAN_MS // EVERY_MS):
        watch.look()
        clock.advance(EVERY_MS)
        free[Path("/a")] -= GB  # 360 GB an hour
    (line,) = watch.problems()
    assert line.startswith("the disk of /a is full in 2.")
    assert "100.00 MB/s" in line
    assert {len(seen) for seen in watch._seen.values()} == {3 * SPAN_MS // EVERY_MS}
    hours = {
        sample.labels["logDirectory"]: sample.value
        for sample in metrics.samples()
        if "hours" in sample.name
    }
    assert hours["/a"] == pytest.approx(free[Path("/a")] / GB / 360, rel=0.01)
    assert hours["/b"] == float("inf")
    free[Path("/a")] = 360 * GB * (SHOWN_HOURS_MAX + 10)
    clock.advance(SPAN_MS)
    for _ in range(SPAN_MS // EVERY_MS):
        watch.look()
        clock.advance(EVERY_MS)
        free[Path("/a")] -= GB
    assert watch.problems() == []
    del free[Path("/a")]
    watch.look()
    assert {sample.labels["logDirectory"] for sample in metrics.samples()} == {"/b"}


def pass_time(
    watch: DiskForecast, clock: ManualClock, looks: int, fill: Callable[[], None]
) -> None:
    for _ in range(looks):
        watch.look()
        clock.advance(EVERY_MS)
        fill()


def test_with_retention_the_last_hour_predicts_a_disk_full_within_a_day() -> None:
    a, clock = Path("/a"), ManualClock()
    free = {a: 36 * GB * (WARNED_HOURS_MAX + 2)}

    def fill() -> None:
        free[a] -= GB // 10  # 36 GB an hour

    watch = DiskForecast(lambda: list(free), Disks(free), clock)
    pass_time(watch, clock, LONG_SPAN_MS // EVERY_MS, fill)
    assert watch.warnings() == [], "25 hours are left"
    pass_time(watch, clock, 2 * LONG_SPAN_MS // EVERY_MS, fill)
    (line,) = watch.warnings()
    assert line == "the disk of /a is full in 23.0 h at the rate of the last hour, 10.00 MB/s"
    assert len(watch._seen[a]) == LONG_SPAN_MS // EVERY_MS + 1
    assert watch.problems() != []


def test_a_disk_that_fills_between_retention_deletions_gives_no_warning() -> None:
    """By the last ten minutes it would be full within hours."""
    a, clock = Path("/a"), ManualClock()
    free = {a: 40 * GB}
    looks = 0

    def fill() -> None:
        nonlocal looks
        looks += 1
        free[a] += 18 * GB if looks % 180 == 0 else -GB // 10  # each half hour

    watch = DiskForecast(lambda: list(free), Disks(free), clock)
    pass_time(watch, clock, 2 * LONG_SPAN_MS // EVERY_MS + 170, fill)
    assert watch.problems() != []
    assert watch.warnings() == []


def test_a_burst_after_a_start_is_no_rate_yet() -> None:
    a, clock = Path("/a"), ManualClock()
    free = {a: 40 * GB}
    watch = DiskForecast(lambda: list(free), Disks(free), clock)

    def fill() -> None:
        free[a] -= GB // 10

    pass_time(watch, clock, LONG_SPAN_MIN_MS // EVERY_MS, fill)
    assert watch.warnings() == []
    pass_time(watch, clock, 1, fill)
    assert len(watch.warnings()) == 1


@pytest.mark.parametrize("fills", [0, 1, -1])
def test_a_disk_that_is_nearly_full_is_named_whatever_its_rate(fills: int) -> None:
    least = 100 * GB * FREE_PERCENT_MIN // 100
    seen = [Free(0, least - 1 + fills, 100 * GB), Free(MINUTE_MS, least - 1, 100 * GB)]
    text = "the disk of /a is nearly full: 5.0% is free, 5000 MB"
    assert shortage(Path("/a"), seen, MINUTE_MS) == text
    assert shortage(Path("/a"), seen[1:], MINUTE_MS) == text, "one moment is enough"
    seen.append(Free(2 * MINUTE_MS, least, 100 * GB))
    assert shortage(Path("/a"), seen, 2 * MINUTE_MS) == ""


def test_free_bytes_of_each_directory_are_those_of_the_last_look(free: dict[Path, int]) -> None:
    metrics = Registry()
    watch = DiskForecast(lambda: list(free), Disks(free), ManualClock())
    watch.register(metrics)
    for left in (3 * GB, 2 * GB):
        free[Path("/a")] = left
        watch.look()
    shown = {
        one.labels["logDirectory"]: one.value
        for one in metrics.samples()
        if one.name == "tidemark_log_dir_free_bytes"
    }
    assert shown == {"/a": 2 * GB, "/b": 1_000 * GB}


def test_a_disk_says_what_is_free(tmp_path: Path) -> None:
    assert 0 < Disk().free_bytes(tmp_path) < 2**63
    with pytest.raises(OSError, match="No such file"):
        Disk().free_bytes(tmp_path / "none")
