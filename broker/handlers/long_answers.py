"""Answers that are made at once where they are short, and in turns of the event loop else."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from runtime.scheduler import LoopScheduler
from runtime.work import OnPool, Runner, Until, Work

R = TypeVar("R")


def answer_or_future(work: Work[R]) -> R | asyncio.Future[R]:
    """Do the work as far as it goes now: what is short makes no task and no future.

    Args:
        work: calls on pools are `awaited`; after its result it has nothing to do.

    Returns:
        The result, or a future of it; where that is cancelled the work is closed.
    """
    try:
        wanted = next(work)
    except StopIteration as end:
        result: R = end.value
        return result
    assert not isinstance(wanted, OnPool)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()
    outcome: asyncio.Future[R] | None = future

    def settled(settle: Callable[[asyncio.Future[R], Any], None], value: Any) -> None:
        nonlocal outcome
        to_settle, outcome = outcome, None  # else it, an error and its traceback are a cycle
        if to_settle is not None and not to_settle.done():
            settle(to_settle, value)

    def rest() -> Work[None]:
        try:
            yield wanted
            settled(asyncio.Future.set_result, (yield from work))
        finally:
            work.close()

    runner = Runner(
        rest, LoopScheduler(loop), failed=partial(settled, asyncio.Future.set_exception)
    )
    future.add_done_callback(lambda _: runner.cancel())
    runner.start()
    return future


def awaited(awaitable: Awaitable[R]) -> Work[R]:
    """Wait for something in such work; it is cancelled with it."""
    future = asyncio.ensure_future(awaitable)
    try:
        yield Until(partial(_call_when_done, future))
        return future.result()
    finally:
        future.cancel()
        del future  # else an error, this frame in its traceback and the future are a cycle


def _call_when_done(future: asyncio.Future[Any], fn: Callable[[], None]) -> None:
    future.add_done_callback(lambda _: fn())
