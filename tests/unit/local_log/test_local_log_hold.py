"""A leader keeps local segments for followers that were told to begin there."""

import errno
from pathlib import Path

import pytest

from local_log.config import LONG_MAX
from local_log.log import hold as hold_module
from local_log.log import retention
from local_log.log.hold import TIMES_MAX, LocalHold
from local_log.log.partition_log import PartitionLog
from local_log.log.retention_policy import Reason, RetentionFacts, SegmentFacts, decide
from runtime.disk import Disk
from runtime.log_context import LimitedLog
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.local_log import NOW_MS, append, drop, filled, retain, with_config

FOR_MS = 600_000
EXPIRES = with_config(
    remote_storage_enable=True, local_retention_ms=1000, retention_ms=-1, retention_bytes=-1
)
LATER_MS = NOW_MS + 10_000


class Space(Disk):
    """A disk of 1,000 bytes, of which `free` are free; counts how often it was asked."""

    def __init__(self, free: int = 1_000) -> None:
        super().__init__()
        self.free = free
        self.asked = 0

    def free_bytes(self, path: Path) -> int:
        self.asked += 1
        return self.free

    def total_bytes(self, path: Path) -> int:
        return 1_000


def copied(directory: Path, disk: Disk | None = None) -> PartitionLog:
    """A log of many segments, all but the last one copied and past their local retention."""
    log = filled(directory, config=EXPIRES, log_start=0, disk=disk)
    log.roll(NOW_MS)
    append(log, at_ms=LATER_MS, now_ms=LATER_MS)
    log.update_high_watermark(log.log_end_offset)
    assert log.set_copied_through(log.segments.bases[-1] - 1, 0)
    return log


def hold(log: PartitionLog, start_offset: int, *, now_ms: int = NOW_MS) -> None:
    log.hold.begin(start_offset, now_ms=now_ms, for_ms=FOR_MS)


def held_pass(log: PartitionLog, now_ms: int) -> tuple[tuple[int, Reason], ...]:
    """As the manager does it: first what is the pool's."""
    retention.learn_ages(log, now_ms)
    return retain(log, now_ms)


# -- the decision --------------------------------------------------------------------------------

SEGMENTS = [SegmentFacts(10 * i, 10 * i + 10, 100, 1) for i in range(4)]
FACTS = RetentionFacts(
    log_start_offset=0, high_watermark=100, copied_through=29, now_ms=10_000, held_from=20
)


@pytest.mark.parametrize("limit", ["local_retention_ms", "local_retention_bytes"])
def test_segments_that_end_above_the_told_start_stay_the_others_go(limit: str) -> None:
    config = with_config(EXPIRES, **{"local_retention_ms": -1, limit: 0})
    assert len(decide(SEGMENTS, FACTS, config).drop) == 2
    within = RetentionFacts(0, 100, 29, 10_000, held_from=19)
    assert len(decide(SEGMENTS, within, config).drop) == 1
    nothing_held = RetentionFacts(0, 100, 29, 10_000)
    assert len(decide(SEGMENTS, nothing_held, config).drop) == 3


def test_what_lies_below_the_log_start_goes_although_it_is_held() -> None:
    facts = RetentionFacts(20, 100, 29, 10_000, held_from=0)
    assert decide(SEGMENTS, facts, EXPIRES).drop == (Reason.LOG_START,) * 2


def test_the_total_retention_of_a_topic_that_is_not_copied_holds_nothing() -> None:
    config = with_config(EXPIRES, remote_log_copy_disable=True, retention_ms=1000)
    facts = RetentionFacts(0, 100, 29, 10_000, held_from=0)
    assert decide(SEGMENTS, facts, config).drop == (Reason.TIME,) * 3


# -- how long ------------------------------------------------------------------------------------


def test_a_hold_ends_by_the_wall_clock_and_with_the_leadership() -> None:
    held = LocalHold()
    assert held.start_at(NOW_MS) == LONG_MAX
    held.begin(30, now_ms=NOW_MS, for_ms=FOR_MS)
    assert held.start_at(NOW_MS + FOR_MS - 1) == 30
    assert held.start_at(NOW_MS + FOR_MS) == LONG_MAX
    held.end()
    assert held.start_at(NOW_MS) == LONG_MAX


def test_a_follower_that_never_gets_there_does_not_hold_a_log_for_ever() -> None:
    hold, held = LocalHold(), []
    for asked_ms in range(NOW_MS, NOW_MS + 20 * FOR_MS, FOR_MS // 10):
        hold.begin(7, now_ms=asked_ms, for_ms=FOR_MS)
        held.append(hold.start_at(asked_ms) == 7)
    assert held.index(False) == 10 * TIMES_MAX
    assert held[held.index(False) :].index(True) == 10, "then it may begin again"


def test_zero_milliseconds_hold_nothing() -> None:
    held = LocalHold()
    held.begin(30, now_ms=NOW_MS, for_ms=0)
    assert held.start_at(NOW_MS) == LONG_MAX


def test_a_later_follower_renews_the_hold_and_the_lowest_start_is_held() -> None:
    held = LocalHold()
    held.begin(30, now_ms=NOW_MS, for_ms=FOR_MS)
    held.begin(50, now_ms=NOW_MS + 100, for_ms=FOR_MS)
    assert held.start_at(NOW_MS + FOR_MS + 99) == 30
    held.begin(20, now_ms=NOW_MS + 200, for_ms=FOR_MS)
    assert held.start_at(NOW_MS + FOR_MS) == 20
    held.begin(70, now_ms=NOW_MS + 200 + FOR_MS, for_ms=FOR_MS)
    assert held.start_at(NOW_MS + 200 + FOR_MS) == 70


# -- on a real log -------------------------------------------------------------------------------


def test_local_retention_stops_at_the_held_start_until_the_hold_ends(
    tmp_path: Path,
) -> None:
    log = copied(tmp_path)
    told = log.segments.bases[4] + 1  # within a segment, which stays whole
    hold(log, told)
    assert len(held_pass(log, LATER_MS)) == 4
    assert log.local_log_start_offset <= told
    assert held_pass(log, LATER_MS) == ()
    assert held_pass(log, NOW_MS + FOR_MS)
    assert log.local_log_start_offset > told


def test_deleted_records_go_although_they_are_held(tmp_path: Path) -> None:
    log = copied(tmp_path)
    fourth = log.segments.bases[4]
    hold(log, 0)
    log.raise_log_start(fourth)
    assert {reason for _, reason in held_pass(log, LATER_MS)} == {Reason.LOG_START}
    assert log.local_log_start_offset == fourth


def test_a_start_that_is_told_while_segments_are_leaving_is_still_there(tmp_path: Path) -> None:
    log = copied(tmp_path)
    expiry = retention.expire(log, LATER_MS)
    assert expiry is not None
    told = log.local_log_start_offset
    hold(log, told, now_ms=LATER_MS)
    assert drop(log, expiry) == ()
    assert log.local_log_start_offset == told


# -- the disk ------------------------------------------------------------------------------------


@pytest.fixture
def said_never(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """No line about a short disk was written yet; by which clock the next one is."""
    clock = ManualClock(NOW_MS)
    monkeypatch.setattr(hold_module, "limited", LimitedLog(clock))
    return clock


def test_many_logs_on_a_short_disk_are_one_line_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said_never: ManualClock
) -> None:
    disk = Space(free=1)
    holds = [LocalHold() for _ in range(50)]
    for each in holds:
        each.begin(0, now_ms=NOW_MS, for_ms=FOR_MS)
        each.look_at_disk(disk, tmp_path, NOW_MS)
    assert all(each.is_disk_short for each in holds)
    assert caplog.text.count("disk is short") == 1
    said_never.advance(60_000)
    disk.free = 1_000
    holds[0].look_at_disk(disk, tmp_path, NOW_MS)
    disk.free = 1
    holds[0].look_at_disk(disk, tmp_path, NOW_MS)
    assert "1 bytes are free (lines left out: 49)" in caplog.text


@pytest.mark.usefixtures("said_never")
def test_nothing_is_held_while_less_than_a_tenth_of_the_disk_is_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Space(free=100)
    log = copied(tmp_path, disk)
    hold(log, 0)
    assert held_pass(log, LATER_MS) == ()
    assert "disk is short" not in caplog.text
    disk.free = 99
    retention.learn_ages(log, LATER_MS)
    retention.learn_ages(log, LATER_MS)
    assert caplog.text.count("disk is short") == 1
    disk.free = 100
    assert held_pass(log, LATER_MS) == ()
    disk.free = 99
    assert held_pass(log, LATER_MS)


def test_a_disk_that_does_not_say_how_full_it_is_holds_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = copied(tmp_path, disk)
    hold(log, 0)
    disk.fail(["free_bytes"], error=errno.EIO)
    assert held_pass(log, LATER_MS)
    assert not log.is_offline


def test_the_pool_asks_for_disk_space_only_while_a_start_is_held(
    tmp_path: Path,
) -> None:
    disk = Space()
    log = copied(tmp_path, disk)
    retention.learn_ages(log, LATER_MS)
    assert disk.asked == 0
    hold(log, log.segments.bases[1])
    assert retain(log, LATER_MS)
    assert disk.asked == 0
    retention.learn_ages(log, LATER_MS)
    assert disk.asked == 1
