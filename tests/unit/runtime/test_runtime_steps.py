"""Work in turns and jobs: one at a time, errors where they belong, a stop that waits."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from runtime.executors import make_pool
from runtime.scheduler import LoopScheduler
from runtime.steps import NEXT_TURN, StepRunner, Steps
from tests.support.sim.ports import simulated
from tests.support.worlds.pools import HeldPool


def runner(begin: Callable[[], Steps], pool: Any = None) -> StepRunner:
    ports = simulated(pool=pool)
    return StepRunner(begin, pool=ports.executors.changes, scheduler=ports.scheduler, name="test")


def test_without_threads_all_is_done_when_start_returns() -> None:
    done: list[object] = []

    def work() -> Steps:
        done.append((yield lambda: 7))
        yield NEXT_TURN
        done.append((yield lambda: 8))

    runner(work).start()
    assert done == [7, 8]


def test_what_a_job_raises_is_raised_where_it_was_asked_for() -> None:
    done: list[object] = []

    def work() -> Steps:
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError as error:
            done.append(error)
        done.append((yield lambda: 8))

    runner(work).start()
    assert [type(one) for one in done] == [ZeroDivisionError, int]


def test_work_that_runs_is_not_begun_twice_and_begins_again_after_its_end() -> None:
    pool, begun = HeldPool(), 0

    def work() -> Steps:
        nonlocal begun
        begun += 1
        yield lambda: None

    steps = runner(work, pool)
    steps.start()
    steps.start()
    assert begun == 1
    pool.release()
    assert not steps.is_running
    steps.start()
    assert begun == 2


def test_work_that_fails_ends_and_can_be_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> Steps:
        yield lambda: 1 // 0

    steps = runner(work)
    steps.start()
    assert not steps.is_running
    assert "work ended before its end: name=test" in caplog.text


async def test_others_have_their_turn_and_a_stop_waits_for_the_job_that_runs() -> None:
    loop, pool = asyncio.get_running_loop(), make_pool("test", 1)
    order: list[str] = []
    began, may_end = asyncio.Event(), asyncio.Event()

    def job() -> None:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result()
        order.append("job")

    def work() -> Steps:
        order.append("first")
        yield NEXT_TURN
        order.append("second")
        yield job
        order.append("never")

    steps = StepRunner(work, pool=pool, scheduler=LoopScheduler(loop), name="test")
    steps.start()
    order.append("another")
    await began.wait()
    assert order == ["first", "another", "second"]
    stopping = asyncio.ensure_future(steps.stop())
    may_end.set()
    await stopping
    assert order[-1] == "job"
    steps.start()
    assert not steps.is_running
    pool.shutdown()
