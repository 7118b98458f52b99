"""A pool whose work runs when the test says so."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class HeldPool:
    """A `Pool` that keeps its calls until they are released, in the order in which they came.

        pool = HeldPool()
        answer = asyncio.ensure_future(handler(...))
        await pool.until_held()
        assert not answer.done()
        pool.release()                  # makes the calls, in this thread
        await answer

    Attributes:
        is_holding: False: calls are made at once, as by an InlinePool.
    """

    def __init__(self, *, is_holding: bool = True) -> None:
        self.is_holding = is_holding
        self._held: deque[Callable[[], None]] = deque()

    @property
    def held(self) -> int:
        """How many calls wait."""
        return len(self._held)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Keep the call, or make it now."""
        future: Future[T] = Future()

        def make() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        self._held.append(make)
        if not self.is_holding:
            self.release()
        return future

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Keep the call, or make it now; await its result."""
        return await asyncio.wrap_future(self.submit(fn, *args, **kwargs))

    def shutdown(self, *, wait: bool = True) -> None:
        """Make what is held."""
        self.release()

    def release(self, count: int | None = None) -> None:
        """Make the oldest `count` calls now (default: all, also those that they bring)."""
        while self._held and (count is None or count > 0):
            self._held.popleft()()
            count = None if count is None else count - 1

    def stop_holding(self) -> None:
        """Make what is held, and all that comes at once."""
        self.is_holding = False
        self.release()

    def take(self) -> list[Callable[[], None]]:
        """Take out the calls that wait: whoever has them makes them, late; others are made now."""
        held, self._held, self.is_holding = list(self._held), deque(), False
        return held

    async def until_held(self, count: int = 1) -> None:
        """Let the loop run until `count` calls wait; fails after 1,000 turns."""
        for _ in range(1000):
            if self.held >= count:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"only {self.held} calls came to the pool, not {count}")


async def turns(count: int = 50) -> None:
    """Let everything that is ready on the loop continue."""
    for _ in range(count):
        await asyncio.sleep(0)
