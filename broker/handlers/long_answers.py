"""Short answers are made at once; long ones in slices, without a task."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from runtime.collector import collect_after_step
from runtime.work import Until

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Answering = Generator[Until | None, None, R_co]
"""A generator that makes an answer; it waits for pools by `awaited`."""


def answer_or_future(work: Answering[R]) -> R | asyncio.Future[R]:
    """Run `work` until it must wait; if it ends by then, there is no task and no future.

    Returns:
        The result, or a future of it. Cancelling the future closes `work`.
    """
    try:
        wanted = next(work)
    except StopIteration as end:
        result: R = end.value
        return result
    future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
    _Rest(work, future).proceed_after(wanted)
    return future


class _Rest(Generic[R]):
    """A started generator, and the future of its result."""

    __slots__ = ("_future", "_work")

    def __init__(self, work: Answering[R], future: asyncio.Future[R]) -> None:
        self._work = work
        self._future: asyncio.Future[R] | None = future
        future.add_done_callback(self._over)

    def proceed_after(self, wanted: Until | None) -> None:
        if wanted is None:
            collect_after_step()
            asyncio.get_running_loop().call_soon(self._continue)
        else:
            wanted.wait(self._continue)

    def _continue(self) -> None:
        if self._future is None or self._future.done():
            return  # the future was cancelled
        try:
            wanted = self._work.send(None)
        except StopIteration as end:
            self._future.set_result(end.value)
        except asyncio.CancelledError:  # its `awaited` future was cancelled
            self._future.cancel()
        except Exception as error:  # noqa: BLE001 - reported through the future
            self._future.set_exception(error)
        else:
            self.proceed_after(wanted)

    def _over(self, _: object) -> None:
        # breaks the cycle of the future, an error and its traceback, which refers to this object
        self._future = None
        self._work.close()


def awaited(awaitable: Awaitable[R]) -> Answering[R]:
    """Wait for an awaitable in such a generator; closing the generator cancels it."""
    future = asyncio.ensure_future(awaitable)
    try:
        yield Until(partial(_call_when_done, future))
        return future.result()
    finally:
        future.cancel()
        del future  # breaks the cycle of an error, this frame in its traceback, and the future


def until_all_done(
    futures: Collection[asyncio.Future[Any]], *, timeout_s: float
) -> Answering[None]:
    """Wait until all are done or the time is over; `futures` must not be empty."""
    left = len(futures)
    timer: asyncio.TimerHandle | None = None

    def wait(proceed: Callable[[], None]) -> None:
        def one_is_done(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                proceed()

        nonlocal timer
        timer = asyncio.get_running_loop().call_later(timeout_s, proceed)
        for future in futures:
            future.add_done_callback(one_is_done)

    try:
        yield Until(wait)
    finally:
        left = 0  # later ones must not call `proceed`
        if timer is not None:
            timer.cancel()


def _call_when_done(future: asyncio.Future[Any], fn: Callable[[], None]) -> None:
    future.add_done_callback(lambda _: fn())
