"""Runs a long computation on the event loop without holding it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

from runtime.collector import look_after_step
from runtime.long_work import Run, Until, Work
from runtime.scheduler import LoopScheduler

R = TypeVar("R")


async def run_in_steps(steps: Generator[None, None, R]) -> R:
    """Take the steps of a computation, with a turn of everything else on the loop after each."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        look_after_step()
        await asyncio.sleep(0)


def result_or_rest(steps: Generator[None, None, R]) -> R | Coroutine[Any, Any, R]:
    """Take the first step now.

    Returns:
        The result, or the rest of the steps for `await`.
    """
    try:
        next(steps)
    except StopIteration as end:
        result: R = end.value
        return result
    return run_in_steps(steps)


def result_or_future(work: Work[R]) -> R | asyncio.Future[R]:
    """Do work as far as it goes now: what is short makes no task and no future.

    Returns:
        The result, or a future of it; where that is cancelled the work is closed.
    """
    try:
        wanted = next(work)
    except StopIteration as end:
        result: R = end.value
        return result
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def unless_cancelled(settle: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            settle(outcome)

    run = Run(
        work,
        LoopScheduler(loop),
        done=lambda value: unless_cancelled(future.set_result, value),
        failed=lambda error: unless_cancelled(future.set_exception, error),
    )
    future.add_done_callback(lambda _: run.cancel())
    run.go_on_after(wanted)
    return future


def awaited(awaitable: Awaitable[R]) -> Work[R]:
    """Wait in work that an asyncio loop does; what is awaited is cancelled with it."""
    future = asyncio.ensure_future(awaitable)
    try:
        yield Until(partial(_call_when_done, future))
        return future.result()
    finally:
        future.cancel()
        del future  # else an error, this frame in its traceback and the future are a cycle


def _call_when_done(future: asyncio.Future[Any], fn: Callable[[], None]) -> None:
    future.add_done_callback(lambda _: fn())
