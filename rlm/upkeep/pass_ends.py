"""Waiting for passes that have not begun yet to end; all on the manager's thread."""

from collections.abc import Callable


class CountDown:
    """Calls a function once, after so many calls of `one`; at once where none is awaited."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left, self._done = count, done
        if not count:
            done()

    def one(self) -> None:
        """One of them has come."""
        self._left -= 1
        if self._left == 0:
            self._done()


class PassEnds:
    """Those that wait for the end of one kind of pass of one partition."""

    __slots__ = ("_next", "_running")

    def __init__(self) -> None:
        self._next: list[CountDown] = []
        self._running: list[CountDown] = []

    def wait(self, waiting: CountDown) -> None:
        """Count down when the next pass that begins has ended, or when none will begin."""
        self._next.append(waiting)

    def begun(self) -> None:
        """A pass begins."""
        self._running, self._next = self._running + self._next, []

    def ended(self) -> None:
        """A pass has ended, successfully or not."""
        over, self._running = self._running, []
        for waiting in over:
            waiting.one()

    def cancelled(self) -> None:
        """No pass begins any more."""
        self.begun()
        self.ended()
