"""Long computations in steps, so that an event loop can do other things in between.

A computation in steps is a generator: it yields where it may be left for a while, and returns its
result. How long a step is, is counted and not measured, so a simulation that is run again pauses at
the same places.

    @stepwise
    def add_up(numbers: list[int]) -> Steps[int]:
        total, pace = 0, Pace()
        for number in numbers:
            total += number
            if pace.is_step_over():
                yield
        return total

    add_up([1, 2])                                  # at once
    await run_in_steps(add_up.steps([1, 2]))        # see runtime.turns
"""

from collections.abc import Callable, Generator
from functools import update_wrapper
from typing import Final, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Steps = Generator[None, None, R_co]

STEP_WORK: Final = 3_000
"""Units of work in a step; a unit is about a microsecond."""


class Pace:
    """Counts work, and says where a step is over."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def is_step_over(self, work: int = 1) -> bool:
        """Add `work` units; whether to yield now."""
        self._done += work
        if self._done < STEP_WORK:
            return False
        self._done = 0
        return True


def at_once(steps: "Steps[R]") -> R:
    """Take all steps one after the other."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result


class Stepwise(Generic[P, R]):
    """A function that can be called as a whole or in steps."""

    def __init__(self, steps: "Callable[P, Steps[R]]") -> None:
        self.steps = steps
        update_wrapper(self, steps)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result, at once."""
        return at_once(self.steps(*args, **kwargs))


def stepwise(steps: "Callable[P, Steps[R]]") -> Stepwise[P, R]:
    """Let a generator function be called as a whole, too."""
    return Stepwise(steps)
