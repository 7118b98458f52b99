"""Futures of writes and roles: only the engine ends them."""

from concurrent.futures import Future


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
