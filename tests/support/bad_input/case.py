"""The table's entries: what is sent for a row, as functions that `case` and `cases` register."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tests.support.bad_input.stage import Stage

T = TypeVar("T")
MB = 1_000_000


class On(Enum):
    """Which broker gets it.

    PLAIN: with its defaults. NARROW: with deadlines of a second, and small limits.
    """

    PLAIN = "plain"
    NARROW = "narrow"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is sent or done.

    Attributes:
        row: label in the table of bad inputs; own finds begin with another letter.
        label: which of the row's siblings.
        act: does it, and validates the answer.
        on: which broker gets it.
        peak_bytes: the broker's memory may rise by so much while it lasts.
        alone: it works the event loop so hard that no other test may run beside it.
    """

    row: str
    label: str
    act: Callable[[Stage], None]
    on: On = On.PLAIN
    peak_bytes: int = 50 * MB
    alone: bool = False

    @property
    def id(self) -> str:
        """Of the test."""
        return f"{self.row}-{self.label}"


TABLE: list[Case] = []


def case(
    row: str, *, on: On = On.PLAIN, peak_bytes: int = 50 * MB, alone: bool = False
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Register a function as a case of `row`; its name is the label."""

    def register(act: Callable[[Stage], None]) -> Callable[[Stage], None]:
        TABLE.append(Case(row, act.__name__.replace("_", "-"), act, on, peak_bytes, alone))
        return act

    return register


def cases(
    values: Mapping[str, T], *, on: On = On.PLAIN, peak_bytes: int = 50 * MB
) -> Callable[[Callable[[Stage, T], None]], Callable[[Stage, T], None]]:
    """Register a case for each value; a key is the row and the label, `N028 crc`."""

    def register(act: Callable[[Stage, T], None]) -> Callable[[Stage, T], None]:
        for key, value in values.items():
            row, label = key.split(" ", 1)
            TABLE.append(Case(row, label.replace(" ", "-"), _with(act, value), on, peak_bytes))
        return act

    return register


def _with(act: Callable[[Stage, T], None], value: T) -> Callable[[Stage], None]:
    return lambda stage: act(stage, value)
