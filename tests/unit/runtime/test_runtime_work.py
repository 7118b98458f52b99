"""Work in steps: one piece at a time, errors where they belong, and its ends."""

import asyncio
import inspect
from collections.abc import Callable

import pytest

from runtime.executors import Pool, make_pool
from runtime.scheduler import LoopScheduler
from runtime.work import (
    OnPool,
    Runner,
    Steps,
    Until,
    Work,
    WorkQueue,
    logged,
    result_or_rest,
)
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.pools import HeldPool

INLINE = simulated().executors.changes


def runner(begin: Callable[[], Work[None]]) -> Runner:
    return Runner(begin, ManualScheduler(ManualClock()), failed=logged("test"))


def test_without_threads_all_is_done_when_start_returns() -> None:
    done: list[object] = []

    def work() -> Work[None]:
        done.append((yield OnPool(INLINE, max, 3, 7)))
        yield None
        done.append((yield OnPool(INLINE, lambda: 8)))

    runner(work).start()
    assert done == [7, 8]


def test_what_a_call_raises_is_raised_where_it_was_asked_for() -> None:
    done: list[object] = []

    def work() -> Work[None]:
        try:
            yield OnPool(INLINE, lambda: 1 // 0)
        except ZeroDivisionError as error:
            done.append(error)
        done.append((yield OnPool(INLINE, lambda: 8)))

    runner(work).start()
    assert [type(one) for one in done] == [ZeroDivisionError, int]


@pytest.mark.parametrize(
    ("error", "begin"), [(OSError("full"), "task failed: name=test"), (KeyError("k"), "work ended")]
)
def test_an_error_of_a_disk_is_no_defect(
    error: Exception, begin: str, caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> Work[None]:
        yield None
        raise error

    runner(work).start()
    [record] = caplog.records
    assert record.getMessage().startswith(begin)
    assert ("defect" in record.getMessage()) is isinstance(error, KeyError)
    assert (record.exc_info is not None) is isinstance(error, KeyError)


def test_work_that_runs_is_not_begun_twice_and_begins_again_after_its_end() -> None:
    pool, begun = HeldPool(), 0

    def work() -> Work[None]:
        nonlocal begun
        begun += 1
        yield OnPool(pool, lambda: None)

    steps = runner(work)
    steps.start()
    steps.start()
    assert begun == 1
    pool.release()
    assert not steps.is_running
    steps.start()
    assert begun == 2


def test_work_that_fails_ends_and_can_be_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> Work[None]:
        yield OnPool(INLINE, lambda: 1 // 0)

    steps = runner(work)
    for _ in range(2):
        steps.start()
        assert not steps.is_running
        assert "work ended before its end: name=test" in caplog.text
        caplog.clear()


def test_work_waits_until_it_is_called_and_who_waits_for_its_end_is() -> None:
    waiting: list[Callable[[], None]] = []
    order: list[str] = []

    def work() -> Work[None]:
        yield Until(waiting.append)
        order.append("called")

    steps = runner(work)
    steps.when_idle(lambda: order.append("nothing runs yet"))
    steps.start()
    steps.when_idle(lambda: order.append("ended"))
    waiting.pop()()
    assert order == ["nothing runs yet", "called", "ended"]


def test_work_that_is_cancelled_ends_where_it_is_and_never_begins_again() -> None:
    pool, order = HeldPool(), list[str]()

    def work() -> Work[None]:
        try:
            yield OnPool(pool, lambda: order.append("call"))
            order.append("result")
        finally:
            order.append("end")

    steps = runner(work)
    steps.start()
    steps.cancel()
    pool.release()
    steps.start()
    assert order == ["end", "call"]
    assert not steps.is_running


def test_work_that_cancels_itself_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    order: list[str] = []

    def work() -> Work[None]:
        steps.cancel()
        order.append("first")
        try:
            yield OnPool(INLINE, order.append, "never called")
            order.append("never")
        finally:
            order.append("end")

    steps = runner(work)
    steps.start()
    assert order == ["first", "end"]
    assert not caplog.records


def test_work_is_told_of_a_pool_that_takes_no_calls() -> None:
    pool, failed = make_pool("test", 1), list[Exception]()
    pool.shutdown()

    def work() -> Work[None]:
        yield OnPool(pool, lambda: 8)

    steps = Runner(work, ManualScheduler(ManualClock()), failed=failed.append)
    steps.start()
    assert [type(one) for one in failed] == [RuntimeError]
    assert not steps.is_running


async def test_others_have_their_turn_and_a_stop_waits_for_the_call_that_runs() -> None:
    loop, pool = asyncio.get_running_loop(), make_pool("test", 1)
    order: list[str] = []
    began, may_end = asyncio.Event(), asyncio.Event()

    def call() -> None:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result()
        order.append("call")

    def work() -> Work[None]:
        order.append("first")
        yield None
        order.append("second")
        try:
            yield OnPool(pool, call)
            order.append("never")
        finally:
            order.append("end")

    steps = Runner(work, LoopScheduler(loop), failed=logged("test"))
    steps.start()
    order.append("another")
    await began.wait()
    assert order == ["first", "another", "second"]
    stopping = asyncio.ensure_future(steps.stop())
    may_end.set()
    await stopping
    assert order[-2:] == ["call", "end"]
    steps.start()
    assert not steps.is_running
    pool.shutdown()


class Queue:
    """A queue, and what came of it."""

    def __init__(self, pool: Pool) -> None:
        self.seen: list[object] = []
        self.errors: list[Exception] = []
        self.queue = WorkQueue(pool, ManualScheduler(ManualClock()), self.errors.append)

    def add(self, call: Callable[[], object], **more: Callable[[Callable[[], None]], None]) -> None:
        self.queue.add(call, self.seen.append, **more)


def test_a_queue_makes_one_call_after_the_other_and_each_when_it_may_begin() -> None:
    pool = HeldPool()
    made, begin = Queue(pool), list[Callable[[], None]]()
    made.add(lambda: 1)
    made.add(lambda: 2, first=begin.append)
    made.add(lambda: 3)
    made.queue.when_idle(lambda: made.seen.append("idle"))
    pool.release()
    assert (made.seen, pool.held) == ([1], 0)
    begin.pop()()
    pool.release(1)
    assert (made.seen, made.queue.is_idle) == ([1, 2], False)
    pool.release()
    assert (made.seen, made.queue.is_idle) == ([1, 2, 3, "idle"], True)


def test_a_queue_is_idle_for_the_last_result_and_takes_more_from_it() -> None:
    made, idle = Queue(INLINE), list[bool]()

    def done(number: int) -> None:
        idle.append(made.queue.is_idle)
        if number:
            made.queue.add(lambda: number - 1, done)

    made.queue.add(lambda: 2, done)
    assert idle == [True] * 3
    assert not made.queue.is_running


def test_after_an_error_a_queue_begins_nothing() -> None:
    pool = HeldPool()
    made = Queue(pool)
    made.add(lambda: 1 // 0)
    made.add(lambda: 2)
    made.queue.when_idle(lambda: made.seen.append("idle"))
    pool.release()
    made.add(lambda: 3)
    assert [type(error) for error in made.errors] == [ZeroDivisionError]
    assert (made.seen, pool.held) == (["idle"], 0)


async def test_a_short_coroutine_returns_at_once_and_a_long_one_yields() -> None:
    def steps(count: int) -> Steps[str]:
        for _ in range(count):
            order.append("step")
            yield
        return "result"

    order: list[str] = []
    assert result_or_rest(steps(0)) == "result"
    rest = result_or_rest(steps(3))
    assert inspect.isawaitable(rest)
    asyncio.get_running_loop().call_soon(order.append, "another")
    assert await rest == "result"
    assert order == ["step", "step", "another", "step"]
