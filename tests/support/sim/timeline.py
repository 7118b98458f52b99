"""Simulated time that many processes share: what is to happen, in order, and who it happens to.

timeline = Timeline()
timeline.at(1_000, fn, argument)             # belongs to no process
timeline.at_process(1_000, process, fn)      # only if that process still lives; later if it is
timeline.turn()                              # paused then
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

ANY_LIFE = -1


class Lives(Protocol):
    """Something that ends and begins again.

    Attributes:
        life: another number in each life.
        paused_until: nothing happens to it before.
    """

    life: int
    paused_until: int


class Timeline:
    """See the module.

    Attributes:
        now_us: the time, in microseconds.
        whom: whom the newest turn was for, None if for nobody or if it was dropped.
    """

    def __init__(self) -> None:
        self.now_us = 0
        self.whom: Lives | None = None
        self._heap: list[tuple[int, int, Lives | None, int, Callable[..., object], Any]] = []
        self._order = 0

    def at(self, at_us: int, fn: Callable[..., object], *args: Any) -> None:
        """Let something happen that belongs to nobody."""
        self._push(at_us, None, 0, fn, args)

    def at_process(self, at_us: int, whom: Lives, fn: Callable[..., object], *args: Any) -> None:
        """Let something happen in this life of somebody."""
        self._push(at_us, whom, whom.life, fn, args)

    def at_any_life(self, at_us: int, whom: Lives, fn: Callable[..., object], *args: Any) -> None:
        """The same in whatever life it then is."""
        self._push(at_us, whom, ANY_LIFE, fn, args)

    def _push(
        self, at_us: int, whom: Lives | None, life: int, fn: Callable[..., object], args: Any
    ) -> None:
        self._order += 1  # equal times happen in the order they were asked for
        heappush(self._heap, (at_us, self._order, whom, life, fn, args))

    @property
    def next_us(self) -> int | None:
        """When the next thing happens; None if nothing is to."""
        return self._heap[0][0] if self._heap else None

    def turn(self) -> bool:
        """Let the next thing happen; whether it did: it may belong to a life that is over."""
        at_us, _order, whom, life, fn, args = heappop(self._heap)
        if at_us > self.now_us:
            self.now_us = at_us
        self.whom = whom
        if whom is not None:
            if life not in (ANY_LIFE, whom.life):
                return False
            if whom.paused_until > self.now_us:
                self._push(whom.paused_until, whom, life, fn, args)
                return False
        fn(*args)
        return True
