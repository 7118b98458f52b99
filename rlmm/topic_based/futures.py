"""Futures of writes and roles: only the engine ends them."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial


def running_future() -> "Future[None]":
    """A future that its holder cannot cancel: the write is under way."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()
    return done


def complete(done: "Future[None]", error: Exception | None) -> None:
    """End it, unless it has ended."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


class Completions:
    """Calls that wait until the engine has let go of its lock; not thread-safe."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None]) -> None:
        """One more."""
        self._calls.append(call)

    def succeed(self, done: "Future[None] | None") -> None:
        """End a future well; None: nobody waits."""
        if done is not None and not done.done():
            self._calls.append(partial(complete, done, None))

    def fail(self, done: "Future[None] | None", error: Exception) -> None:
        """End a future with an error; None: nobody waits."""
        if done is not None and not done.done():
            self._calls.append(partial(complete, done, error))

    def take(self) -> list[Callable[[], None]]:
        """All of them, to be called now."""
        calls, self._calls = self._calls, []
        return calls
