"""Processes on one timeline: clocks apart, pools that take time, pauses, and ends."""

from pathlib import Path

from runtime.sim.dice import SeededDice
from runtime.sim.memory_disk import MemoryDisk
from runtime.sim.memory_machine import MemoryMachine
from runtime.sim.process import SimClock, SimProcess
from runtime.sim.timeline import Timeline


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
    assert seen == [("done", 5), ("known 7", 35)]


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


def test_nothing_of_an_ended_process_happens_and_work_may_be_done_without_it() -> None:
    timeline = Timeline()
    process = process_on(timeline)
    process.disk.machine.cost_us = lambda _operation, _path: 1_000
    ports = process.ports(SeededDice(1))
    seen: list[str] = []

    def work() -> None:
        ports.disk.exists(Path("/x"))
        seen.append("done")

    ports.executors.commit.submit(work).add_done_callback(lambda _: seen.append("known"))
    ports.scheduler.call_later(10, lambda: seen.append("timer"))
    run_until(timeline, 100)
    process.end()
    ports.scheduler.call_soon(lambda: seen.append("after"))
    run_until(timeline, 100_000)
    assert seen == ["done"]
    assert process.has_ended
