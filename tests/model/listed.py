"""What is explored of a model, and its rules excluded one at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Run:
    """One exploration.

    Attributes:
        rules: of the model that it is a run of.
        states: that it has; None: it is left to `--full`, which says how many.
        broken: what the rules do not cover: the search must find that a promise breaks.
    """

    name: str
    rules: Any
    states: int | None = None
    broken: bool = False


@dataclass(frozen=True)
class Mutant:
    """A rule excluded.

    Attributes:
        name: what happens then.
        turned: the rules that differ.
        bounds: in which the story is found.
        story: the shortest, see `stories`; empty: there is none.
        why: there is none.
    """

    name: str
    turned: Mapping[str, Any]
    bounds: Any
    story: str = ""
    why: str = ""
