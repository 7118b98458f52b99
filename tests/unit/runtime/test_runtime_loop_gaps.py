"""What holds an event loop is found, named and told apart from a busy machine."""

import asyncio
import contextlib
import gc
import logging
import select
import sys
import time
from collections.abc import Callable, Coroutine
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import runtime.loop_gaps
from runtime.loop_gaps import GapReport, LoopWatch, busy_threads
from runtime.metrics import Registry
from runtime.thread_accounts import Accounts, Gap, KernelAccounts, LockAccounts, account_for
from tests.support.brokers.process import until

HELD_S = 0.25


class Work:
    """What clients would wait for."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    def hold(self) -> None:
        self._wait_for_the_disk()
        self.done.set()

    async def hold_after_a_while(self) -> None:
        await asyncio.sleep(0)
        self.hold()

    def _wait_for_the_disk(self) -> None:
        select.select([], [], [], HELD_S)


def watched(scene: Callable[[], Coroutine[object, object, None]]) -> tuple[LoopWatch, Registry]:
    """Run a scene on a watched loop; the watch has stopped, so all gaps are counted."""
    metrics = Registry()

    async def run() -> LoopWatch:
        watch = LoopWatch(metrics, "tidemark_")
        await scene()
        watch.stop()
        return watch

    return asyncio.run(run()), metrics


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "runtime.loop_gaps"]


def counted(metrics: Registry) -> float:
    name = "tidemark_event_loop_gap_ms_count"
    return sum(one.value for one in metrics.samples() if one.name == name)


def test_a_callback_that_waits_is_counted_and_named(caplog: pytest.LogCaptureFixture):
    async def scene() -> None:
        work = Work()
        asyncio.get_running_loop().call_soon(work.hold)
        await work.done.wait()

    watch, metrics = watched(scene)
    assert counted(metrics) == 1
    assert HELD_S * 700 < watch.report.longest_ms < HELD_S * 4_000
    (line,) = lines(caplog)
    assert " callback=test_runtime_loop_gaps.Work.hold " in line.replace("tests.unit.runtime.", "")
    assert "Work._wait_for_the_disk:" in line
    page = metrics.render().decode()
    assert "tidemark_event_loop_longest_gap_ms " in page


def test_a_coroutine_is_named_by_its_outermost_function(caplog: pytest.LogCaptureFixture):
    async def scene() -> None:
        await asyncio.ensure_future(Work().hold_after_a_while())

    watched(scene)
    (line,) = lines(caplog)
    assert "Work.hold_after_a_while at=" in line


def test_a_function_of_c_is_named_by_its_handle(caplog: pytest.LogCaptureFixture):
    async def scene() -> None:
        asyncio.get_running_loop().call_soon(select.select, [], [], [], HELD_S)
        await asyncio.sleep(0)

    watched(scene)
    (line,) = lines(caplog)
    assert " callback=select.select at=select.select " in line


def test_a_loop_that_waits_or_works_in_short_turns_has_no_gap(caplog: pytest.LogCaptureFixture):
    async def scene() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), HELD_S)
        for _ in range(20_000):
            await asyncio.sleep(0)

    watch, metrics = watched(scene)
    assert (counted(metrics), watch.report.longest_ms, lines(caplog)) == (0, 0, [])


def test_a_turn_that_does_not_end_is_told_meanwhile(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runtime.loop_gaps, "STILL_HELD_MS", 60)

    async def scene() -> None:
        asyncio.get_running_loop().call_soon(Work().hold)
        await asyncio.sleep(0)

    watched(scene)
    told = [one.split(":")[0] for one in lines(caplog)]
    assert told[0] == "the event loop is still held"
    assert told[-1] == "the event loop was held"


async def test_the_garbage_collector_does_not_run_while_frames_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
):
    """It would call Python, and so let the loop end a function whose frame is in C's hands."""
    seen, current_frames, sight_of = [], sys._current_frames, runtime.loop_gaps.sight_of

    def frames() -> dict[int, FrameType]:
        seen.append(gc.isenabled())
        return current_frames()

    def sight(frame: FrameType | None) -> runtime.loop_gaps.Sight | None:
        seen.append(gc.isenabled())
        return sight_of(frame)

    monkeypatch.setattr(sys, "_current_frames", frames)
    monkeypatch.setattr(runtime.loop_gaps, "sight_of", sight)
    watch = LoopWatch(Registry(), "tidemark_")
    await asyncio.to_thread(until, lambda: len(seen) > 3, "it has looked")
    watch.stop()
    assert set(seen) == {False}
    assert gc.isenabled()


async def test_looking_leaves_nothing_to_the_garbage_collector():
    watch = LoopWatch(Registry(), "tidemark_")
    watch.stop()
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            watch._poll(time.monotonic(), 0)
        assert gc.collect() < 50
    finally:
        gc.enable()


def gap(held_ms: float = 300, runnable_ms: float = 0, stolen_ms: float = 0) -> Gap:
    rest = held_ms - runnable_ms - stolen_ms
    return Gap(held_ms, rest, runnable_ms, stolen_ms, 0, 0, 0)


def test_a_callback_is_named_once_in_a_while(caplog: pytest.LogCaptureFixture):
    report = GapReport(Registry(), "tidemark_")
    with caplog.at_level(logging.INFO):
        report.add(gap(), "one", "place", 100)
        report.add(gap(700), "one", "place", 105)
        report.add(gap(600), "one", "place", 109)
        report.add(gap(), "two", "place", 109)
        report.add(gap(), "one", "place", 111)
    assert [one.split("callback=")[1].split()[0] for one in lines(caplog)] == ["one", "two", "one"]
    assert lines(caplog)[2].endswith(" not_shown=2 not_shown_longest_ms=700")


@pytest.mark.parametrize("kept", [{"runnable_ms": 260}, {"stolen_ms": 260}])
def test_a_busy_machine_is_not_blamed_on_the_callback(
    caplog: pytest.LogCaptureFixture, kept: dict[str, float]
):
    metrics = Registry()
    report = GapReport(metrics, "tidemark_")
    with caplog.at_level(logging.INFO):
        report.add(gap(**kept), "one", "place", 100)
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert record.getMessage().startswith("a busy machine held the event loop: held_ms=300 ")
    assert (counted(metrics), report.longest_ms) == (0, 0)


def test_time_is_told_apart():
    before = Accounts(1_000, 500, 30, 200, 3)
    after = Accounts(1_100, 540, 50, 330, 4)
    parts = account_for(300, before, after)
    assert parts == Gap(300, 100, 40, 20, 30, 110, 1)
    assert parts.own_ms == 240


def test_readings_that_span_more_than_the_gap_are_shared_out():
    parts = account_for(100, Accounts(), Accounts(cpu_ms=300, runnable_ms=100))
    assert (parts.cpu_ms, parts.runnable_ms, parts.blocked_ms) == (75, 25, 0)


durations = st.floats(0, 10_000)


@given(held_ms=durations, after=st.builds(Accounts, durations, durations, durations, durations))
def test_the_parts_are_the_whole(held_ms: float, after: Accounts):
    parts = account_for(held_ms, Accounts(), after)
    assert min(parts[1:6]) >= 0
    assert sum(parts[1:6]) == pytest.approx(held_ms)


def spend_cpu(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_the_kernel_says_what_a_thread_used():
    accounts = KernelAccounts()
    before, began_s = accounts.read(with_stolen=True), time.thread_time()
    spend_cpu(0.1)
    gc.collect()
    used_ms = (time.thread_time() - began_s) * 1_000
    after = accounts.read(with_stolen=True)
    accounts.close()
    assert after.cpu_ms - before.cpu_ms == pytest.approx(used_ms, abs=20)
    assert after.runnable_ms >= before.runnable_ms
    assert after.full_collections > before.full_collections
    assert accounts.read(with_stolen=True)._replace(full_collections=0) == Accounts()


def test_a_stopped_process_did_not_lack_the_lock():
    lock = LockAccounts()
    assert lock.lacked_ms(2_000) < 100
    spend_cpu(0.2)
    assert lock.lacked_ms(2_000) > 100
    lock.close()


def test_of_the_other_threads_those_that_wait_for_work_are_left_out():
    def works() -> list[FrameType]:
        return [sys._getframe()]

    def waits() -> FrameType:
        namespace = {"__name__": "queue", "sys": sys}
        exec("def get(): return sys._getframe()\nframe = get()", namespace)
        frame = namespace["frame"]
        assert isinstance(frame, FrameType)
        return frame

    frames = {1: works()[0], 2: waits(), 3: works()[0]}
    where = busy_threads(frames, watched=3)
    assert where.count("works:") == 1
    assert "get" not in where
    assert busy_threads({2: frames[2]}, watched=3) == "unknown"
