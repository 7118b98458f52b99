"""Runs an iterator in one thread, one step ahead of the caller that takes its items."""

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

from pipeline.errors import StoreUnreachableError
from pipeline.read.progress import Progress, StoppedError

T = TypeVar("T")

_LEAVE_S = 30.0
"""A thread that does not end within this time after a close is left alone."""


def read_ahead(
    items: Generator[T, None, None], progress: Progress, silence_s: float
) -> Generator[T, None, None]:
    """The items; while one is worked on, the next one is being made in a thread.

    Closing this generator ends the thread. It is a daemon: if it hangs in a store's library, it
    keeps no process alive.

    Args:
        items: touched by the thread alone, and closed by it.
        progress: learns from `items` of every byte that comes.
        silence_s: so long without one, and the wait for an item ends.

    Raises:
        StoreUnreachableError: no byte came for too long. And what the iterator raises.
    """
    worker = _Worker()
    is_hanging = False
    try:
        ahead = worker.submit(items, progress)
        while True:
            try:
                found = _result(ahead, progress, silence_s)
            except StoreUnreachableError:
                is_hanging = not ahead.done()
                raise
            if not found:
                return
            ahead = worker.submit(items, progress)
            yield found[0]
    finally:
        progress.stop()
        worker.close(items.close, 0 if is_hanging else _LEAVE_S)


def _result(future: "Future[tuple[T, ...]]", progress: Progress, silence_s: float) -> tuple[T, ...]:
    while not wait([future], max(silence_s - progress.silence_s, 0.01)).done:
        if progress.silence_s >= silence_s:
            raise StoreUnreachableError(
                f"nothing came for {silence_s:.0f} s, and the call does not return: the store"
                " hangs; look at its network and at the deadlines of its plugin"
            )
    return future.result()


class _Worker:
    """One thread and the jobs for it."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tidemark-read", daemon=True)
        self._thread.start()

    def submit(self, items: Iterator[T], progress: Progress) -> "Future[tuple[T, ...]]":
        """Make the next item, in a tuple; an empty one at the end."""
        future: Future[tuple[T, ...]] = Future()

        def make() -> None:
            try:
                future.set_result(tuple(islice(items, 1)))
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                future.set_exception(error)

        progress.begin()
        self._jobs.put(make)
        return future

    def close(self, last: Callable[[], None], patience_s: float) -> None:
        """Do one last job and end the thread."""

        def run() -> None:
            with suppress(StoppedError):
                last()

        self._jobs.put(run)
        self._jobs.put(None)
        self._thread.join(patience_s)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
