"""Pools of real threads: how many calls run at a time, and what a shutdown waits for."""

import asyncio
import gc
import sys
import threading
import weakref

import pytest

from runtime.executors import SWITCH_INTERVAL_S, Executors, ThreadPools, favour_the_loop

DEADLINE_S = 5.0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_pool_runs_as_many_calls_at_a_time_as_it_has_threads(threads: int) -> None:
    pools: Executors = ThreadPools()
    meeting = threading.Barrier(threads + 1)
    proceed = threading.Event()

    def meet() -> bool:
        meeting.wait(DEADLINE_S)
        return proceed.wait(DEADLINE_S)

    pool = pools.pool("audit", threads)
    running = [pool.submit(meet) for _ in range(threads)]
    one_more = pool.submit(proceed.is_set)
    meeting.wait(DEADLINE_S)
    proceed.set()
    assert all(each.result(DEADLINE_S) for each in running)
    assert one_more.result(DEADLINE_S), "it began while each thread was busy"
    pools.shutdown()


def test_a_shutdown_that_waits_lets_the_queued_calls_run() -> None:
    pools = ThreadPools()
    calls = [pools.pool(name, 1).submit(str, name) for name in "aabb"]
    pools.shutdown()
    assert [each.done() and each.result(0) for each in calls] == list("aabb")


def test_a_shutdown_that_does_not_wait_drops_the_queued_calls() -> None:
    pools = ThreadPools()
    began, proceed = threading.Event(), threading.Event()

    def run() -> bool:
        began.set()
        return proceed.wait(DEADLINE_S)

    running, queued = (pools.pool("audit", 1).submit(run) for _ in range(2))
    assert began.wait(DEADLINE_S)
    pools.shutdown(wait=False)
    proceed.set()
    assert running.result(DEADLINE_S), "the call ended before the shutdown returned"
    assert queued.cancelled()


def test_a_thread_that_works_in_python_gives_way_to_the_loop_soon() -> None:
    before = sys.getswitchinterval()
    try:
        favour_the_loop()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
        assert before / 2 > SWITCH_INTERVAL_S
    finally:
        sys.setswitchinterval(before)


async def test_a_call_that_fails_keeps_no_arguments() -> None:
    pools = ThreadPools()

    class Body:
        """What a request was."""

        def refuse(self) -> None:
            raise ValueError

    body = Body()
    seen = weakref.ref(body)
    gc.collect()
    gc.disable()  # a cycle would keep them until a full collection: requests of 100 MiB
    try:
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(pools.pool("audit", 1).run(body.refuse))]
        )
        assert isinstance(done.pop().exception(), ValueError)
        del body
        pools.shutdown()
        assert seen() is None
    finally:
        gc.enable()


async def test_a_call_that_is_given_up_before_its_turn_keeps_no_arguments() -> None:
    pools = ThreadPools()
    began, proceed = threading.Event(), threading.Event()

    class Body:
        """What a request was."""

    def run() -> bool:
        began.set()
        return proceed.wait(DEADLINE_S)

    running = pools.pool("audit", 1).submit(run)
    assert began.wait(DEADLINE_S)
    body = Body()
    seen = weakref.ref(body)
    waiting = asyncio.ensure_future(pools.pool("audit", 1).run(id, body))
    await asyncio.sleep(0)
    del body
    assert seen() is not None
    waiting.cancel()
    await asyncio.wait([waiting])
    del waiting
    gc.collect()  # the frames of its traceback
    assert seen() is None
    proceed.set()
    assert running.result(DEADLINE_S)
    pools.shutdown()
