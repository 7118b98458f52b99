"""Processes on one timeline: clocks apart, pools that take time, pauses, and ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.executors import make_mutex
from tests.support.sim.dice import SeededDice
from tests.support.sim.memory_disk import MemoryDisk
from tests.support.sim.memory_machine import MemoryMachine, MemoryNode
from tests.support.sim.pool_work import in_pieces
from tests.support.sim.process import SimClock, SimProcess
from tests.support.sim.timeline import Timeline

LOG = Path("/log")


@pytest.fixture(autouse=True)
def pools_work() -> Iterator[None]:
    with in_pieces():
        yield


def process_on(timeline: Timeline, *, rate: int = 1000, wait_us: int = 5) -> SimProcess:
    clock = SimClock(timeline, rate=rate, offset_ms=1_000)
    return SimProcess(timeline, clock, MemoryDisk(MemoryMachine()), lambda: wait_us)


def run_until(timeline: Timeline, until_us: int) -> None:
    while timeline.next_us is not None and timeline.next_us <= until_us:
        timeline.turn()
    timeline.now_us = until_us


def test_a_fast_clock_has_its_timers_early_and_the_wall_may_jump() -> None:
    timeline = Timeline()
    process = process_on(timeline, rate=2000)
    ports = process.ports(SeededDice(1))
    rung: list[int] = []
    ports.scheduler.call_later(100, lambda: rung.append(timeline.now_us))
    run_until(timeline, 60_000)
    assert rung == [50_000]
    before = ports.clock.wall_ms()
    process.clock.wall_offset_ms -= 5_000
    assert ports.clock.wall_ms() == before - 5_000
    assert ports.clock.monotonic_ms() == 1_000 + 120


def test_timers_repeat_and_are_cancelled() -> None:
    timeline = Timeline()
    scheduler = process_on(timeline).ports(SeededDice(1)).scheduler
    rung: list[str] = []
    every = scheduler.every(10, lambda: rung.append("every"), "test")
    once = scheduler.call_later(15, lambda: rung.append("once"))
    once.cancel()
    run_until(timeline, 35_000)
    every.cancel()
    run_until(timeline, 100_000)
    assert rung == ["every"] * 3


def test_work_on_a_pool_is_done_later_and_known_later_still() -> None:
    timeline = Timeline()
    process = process_on(timeline)
    process.disk.machine.cost_us = lambda _operation, _path: 30
    ports = process.ports(SeededDice(1))
    seen: list[tuple[str, int]] = []

    def work() -> int:
        seen.append(("done", timeline.now_us))
        ports.disk.exists(process_path)
        return 7

    process_path = Path("/x")
    future = ports.executors.commit.submit(work)
    future.add_done_callback(lambda one: seen.append((f"known {one.result()}", timeline.now_us)))
    run_until(timeline, 1_000)
    assert seen == [("done", 5), ("known 7", 40)]


def test_what_fails_on_a_pool_is_in_the_future() -> None:
    timeline = Timeline()
    ports = process_on(timeline).ports(SeededDice(1))
    future = ports.executors.pool("any", 1).submit(lambda: 1 // 0)
    run_until(timeline, 1_000)
    assert isinstance(future.exception(), ZeroDivisionError)


def test_a_paused_process_does_everything_after_its_pause_in_order() -> None:
    timeline = Timeline()
    process = process_on(timeline)
    scheduler = process.ports(SeededDice(1)).scheduler
    rung: list[tuple[int, int]] = []
    for delay in (3, 1, 2):
        scheduler.call_later(delay, lambda delay=delay: rung.append((delay, timeline.now_us)))
    process.paused_until = 10_000
    run_until(timeline, 20_000)
    assert rung == [(1, 10_000), (2, 10_000), (3, 10_000)]


def test_nothing_of_an_ended_process_happens_and_its_work_ends_within_an_operation() -> None:
    timeline = Timeline()
    process = process_on(timeline)
    process.disk.machine.cost_us = lambda _operation, _path: 1_000
    ports = process.ports(SeededDice(1))
    seen: list[str] = []

    def work() -> None:
        try:
            ports.disk.exists(Path("/x"))
            seen.append("done")
        finally:
            seen.append("left")

    ports.executors.commit.submit(work).add_done_callback(lambda _: seen.append("known"))
    ports.scheduler.call_later(10, lambda: seen.append("timer"))

    def end() -> None:
        assert seen == []
        process.end()
        ports.scheduler.call_soon(lambda: seen.append("after"))

    timeline.at(100, end)
    run_until(timeline, 100_000)
    assert seen == ["left"]
    assert process.has_ended


def test_what_is_due_during_an_operation_of_a_pool_comes_between() -> None:
    """So an append comes while an fsync lasts, which makes durable what was there before it."""
    timeline = Timeline()
    process = process_on(timeline)
    machine, disk = process.disk.machine, process.disk
    machine.cost_us = lambda operation, _path: 10_000 if operation == "fsync" else 1
    ports = process.ports(SeededDice(1))
    file = disk.open_append(LOG)
    disk.fsync_path(LOG.parent)
    disk.append(file, b"before")
    seen: list[int] = []

    def flush() -> None:
        disk.fsync(file)
        seen.append(file.size())

    ports.executors.commit.submit(flush)
    ports.scheduler.call_later(3, lambda: disk.append(file, b" during"))
    run_until(timeline, 5_000)
    assert seen == []
    node = machine.durable(LOG)
    assert isinstance(node, MemoryNode)
    assert node.durable == b""
    run_until(timeline, 20_000)
    assert seen == [len(b"before during")]
    assert node.durable == b"before"


def test_a_job_waits_for_the_lock_that_another_holds_over_an_operation() -> None:
    timeline = Timeline()
    process = process_on(timeline)
    process.disk.machine.cost_us = lambda _operation, _path: 1_000
    ports, mutex = process.ports(SeededDice(1)), make_mutex()
    seen: list[str] = []

    def work(name: str) -> None:
        with mutex:
            seen.append(f"{name} in")
            ports.disk.exists(LOG)
            seen.append(f"{name} out")

    for name in ("a", "b", "c"):
        ports.executors.commit.submit(work, name)
    run_until(timeline, 100_000)
    assert seen == ["a in", "a out", "b in", "b out", "c in", "c out"]


def test_the_event_loop_has_the_holder_of_a_lock_go_on_and_nothing_else() -> None:
    timeline = Timeline()
    process = process_on(timeline)
    process.disk.machine.cost_us = lambda _operation, _path: 10_000
    ports, mutex, other = process.ports(SeededDice(1)), make_mutex(), make_mutex()
    seen: list[str] = []

    def one() -> None:
        with other:
            ports.disk.exists(LOG)
            seen.append("one")

    def two() -> None:
        with mutex:
            with other:
                seen.append("two")
            ports.disk.exists(LOG)
        ports.disk.exists(LOG)
        seen.append("two has ended")

    def loop() -> None:
        with mutex:
            seen.append(f"loop at {timeline.now_us}")

    ports.executors.commit.submit(one)
    ports.executors.commit.submit(two)
    ports.scheduler.call_later(1, loop)
    run_until(timeline, 5_000)
    assert seen == ["one", "two", "loop at 1000"]
    run_until(timeline, 50_000)
    assert seen[3:] == ["two has ended"]


def test_jobs_that_wait_for_a_lock_end_with_their_process() -> None:
    timeline = Timeline()
    process = process_on(timeline)
    process.disk.machine.cost_us = lambda _operation, _path: 1_000
    ports, mutex = process.ports(SeededDice(1)), make_mutex()
    ended: list[str] = []

    def work(name: str) -> None:
        try:
            with mutex:
                ports.disk.exists(LOG)
        finally:
            ended.append(name)

    for name in ("a", "b", "c"):
        ports.executors.commit.submit(work, name)
    timeline.at(500, process.end)
    run_until(timeline, 100_000)
    assert sorted(ended) == ["a", "b", "c"]
    assert not process.jobs
