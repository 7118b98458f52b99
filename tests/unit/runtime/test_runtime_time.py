"""Clocks, timers, rng, pools."""

import asyncio
import threading

import pytest

from runtime.clock import ShiftedClock, SystemClock, offset_of, shift
from runtime.executors import InlinePool, make_pool, spawn_thread
from runtime.rng import SystemRng
from runtime.scheduler import LoopScheduler
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng
from tests.support.sim.scheduler import ManualScheduler


def test_system_clock_tells_milliseconds():
    clock = SystemClock()
    assert clock.wall_ms() > 1_600_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()


def test_manual_clock_moves_only_forward():
    clock = ManualClock(1000)
    clock.advance(5)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1005, 5)
    clock.jump_wall(10)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (10, 5)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)


def test_manual_timers_run_in_order_of_their_time():
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    seen = []
    scheduler.call_later(20, lambda: seen.append(("late", clock.monotonic_ms())))
    scheduler.call_later(10, lambda: seen.append(("early", clock.monotonic_ms())))
    scheduler.call_later(15, lambda: seen.append(("never", 0))).cancel()
    repeat = scheduler.every(8, lambda: seen.append(("again", clock.monotonic_ms())), "again")
    scheduler.advance(20)
    assert seen == [("again", 8), ("early", 10), ("again", 16), ("late", 20)]
    repeat.cancel()
    scheduler.advance(100)
    assert len(seen) == 4
    assert clock.monotonic_ms() == 120


def test_failing_repeated_task_runs_again(caplog):
    scheduler = ManualScheduler(ManualClock())
    runs = []

    def task() -> None:
        runs.append(1)
        raise OSError("disk")

    scheduler.every(10, task, "sweep")
    scheduler.advance(30)
    assert len(runs) == 3
    [line] = caplog.messages
    assert line.startswith("task failed: name=sweep error=OSError: disk")


def test_a_defect_of_a_repeated_task_has_its_stack(caplog):
    scheduler = ManualScheduler(ManualClock())
    scheduler.every(10, lambda: 1 // 0, "sweep")
    scheduler.advance(20)
    [record] = caplog.records
    assert record.getMessage().startswith("scheduled task failed: name=sweep. It is a defect")
    assert record.exc_info is not None


async def test_loop_timers_run_on_the_loop():
    seen: list[str] = []
    done = asyncio.Event()
    scheduler = LoopScheduler(asyncio.get_running_loop())

    def tick() -> None:
        seen.append("tick")
        if len(seen) == 3:
            repeat.cancel()
            done.set()

    repeat = scheduler.every(1, tick, "tick")
    scheduler.call_later(1, lambda: None)
    await asyncio.wait_for(done.wait(), 10)
    repeat.cancel()
    assert seen == ["tick"] * 3


def test_same_seed_gives_the_same_rng():
    one, other = SeededRng(7), SeededRng(7)
    assert [one.uuid() for _ in range(100)] == [other.uuid() for _ in range(100)]
    assert one.random() == other.random()


@pytest.mark.parametrize("rng", [SystemRng(), SeededRng(3)])
def test_ids_are_usable_on_a_command_line(rng):
    ids = {rng.uuid() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(raw) == 16 and raw[0] >> 2 != 0b111110 for raw in ids)
    assert 0 <= rng.random() < 1


@pytest.mark.parametrize("is_on_loop", [True, False])
async def test_what_is_to_run_soon_runs_in_order_after_its_caller(is_on_loop):
    loop, seen = asyncio.get_running_loop(), []
    scheduler, ran = LoopScheduler(loop), asyncio.Event()

    def ask() -> None:
        scheduler.call_soon(lambda: seen.append("first"))
        scheduler.call_soon(lambda: seen.append(threading.current_thread().name))
        scheduler.call_soon(ran.set)

    if is_on_loop:
        ask()
        assert not seen, "run within the caller"
    else:
        spawn_thread("asker", ask)
    async with asyncio.timeout(10):
        await ran.wait()
    assert seen == ["first", threading.current_thread().name]


async def test_pool_gives_results_and_errors_back_to_the_loop():
    pool = make_pool("log-io", 2)
    assert await pool.run(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)
    pool.shutdown()


async def test_inline_pool_behaves_like_a_pool():
    pool = InlinePool()
    assert pool.submit(pow, 2, 5).result() == 32
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result()
    assert await pool.run(lambda: 4) == 4
    pool.shutdown()


def test_spawned_thread_runs_under_its_name():
    names = []
    thread = spawn_thread("link-reader", lambda: names.append(threading.current_thread().name))
    thread.join(10)
    assert names == ["link-reader"]


def test_only_the_wall_time_is_moved() -> None:
    machine = ManualClock(1_000, 50)
    clock = ShiftedClock(machine)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_000, 50)
    clock.offset_ms = 700
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_700, 50)
    machine.advance(3)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_703, 53)


def test_the_offset_is_that_of_a_moved_clock_and_others_are_left_alone() -> None:
    clock, machine = ShiftedClock(ManualClock(), 5), SystemClock()
    assert (offset_of(clock), offset_of(machine)) == (5, 0)
    shift(clock, 9)
    shift(machine, 9)
    assert (offset_of(clock), offset_of(machine)) == (9, 0)
