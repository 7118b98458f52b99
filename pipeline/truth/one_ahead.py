"""Asks the next question while the answer before it is worked on: the broker's time costs none."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

from runtime.executors import ThreadPool

Q = TypeVar("Q")
A = TypeVar("A")


class OneAhead(Generic[Q, A]):
    """One question is on its way at most; used by one thread.

    While one is on its way nobody else may use what `ask` uses.
    """

    def __init__(self, ask: Callable[[Q], A]) -> None:
        """No thread is started yet.

        Args:
            ask: blocks until the answer is there, within a deadline of its own.
        """
        self._ask = ask
        self._pool: ThreadPool | None = None
        self._begun: tuple[Q, Future[A]] | None = None

    def begin(self, question: Q) -> None:
        """Ask this, in a thread."""
        self.drop()
        if self._pool is None:
            self._pool = ThreadPool("pipeline-ahead", 1)
        self._begun = question, self._pool.submit(self._ask, question)

    def answer(self, question: Q) -> A:
        """The answer, or the error: of what was begun if that is the question, else asked now."""
        if self._begun is not None and self._begun[0] == question:
            _, future = self._begun
            self._begun = None
            return future.result()
        self.drop()
        return self._ask(question)

    def drop(self) -> None:
        """Wait for what is on its way, whose answer or error nobody wants any more."""
        if self._begun is not None:
            _, future = self._begun
            self._begun = None
            with suppress(Exception):
                future.result()

    def close(self) -> None:
        """End the thread."""
        self.drop()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
