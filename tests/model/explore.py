"""Breadth-first search over states that can be hashed: the first breach has a shortest story.

States are kept by their 64-bit hash: that two of five million share one is a chance below 1e-6.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

State = Any
"""Hashable; a nested tuple."""
Label = tuple[object, ...]


class Broken(Exception):
    """A promise does not hold after a step."""


class Model(Protocol):
    """What is explored; a step or `covers` raises `Broken` where a promise is broken."""

    def start(self) -> State: ...

    def steps(self, state: State) -> Iterator[tuple[Label, Callable[[], State | None]]]:
        """What may happen next, made when it is called; None: it is out of bounds."""

    def covers(self, state: State) -> bool:
        """Whether the promises still speak of it, and so of what comes after it."""

    def is_fair(self, label: Label) -> bool:
        """Whether this step is made some time, where it can be."""

    def rest(self, state: State) -> None:
        """Raise `Broken` unless it is well that nothing fair is left to do."""


@dataclass
class Found:
    """What a search saw.

    Attributes:
        broken: the promise that does not hold; None: none was found.
        story: labels of the steps up to there, the last one breaks it.
        exhausted: all states within the bounds were seen.
    """

    states: int = 0
    steps: int = 0
    depth: int = 0
    seconds: float = 0.0
    exhausted: bool = False
    broken: str | None = None
    story: list[Label] = field(default_factory=list)

    def __str__(self) -> str:
        how = "broken" if self.broken else "exhausted" if self.exhausted else "cut off"
        return (
            f"{how:9} {self.states:>9,} states {self.steps:>10,} steps depth {self.depth:>2} "
            f"{self.seconds:6.1f} s"
        )


def explore(
    model: Model,
    *,
    states: int = 10_000_000,
    seconds: float = 3600.0,
    progress: Callable[[str], None] | None = None,
) -> Found:
    """Look at all states that can be reached, until a promise is broken or a bound is met.

    Where all were seen: from each of them one schedule of fair steps must come to a good rest.
    """
    search = _Search(model)
    found = search.found
    begun = told = time.perf_counter()
    try:
        while search.frontier:
            frontier, search.frontier = search.frontier, []
            for state in frontier:
                search.leave(state)
                now = time.perf_counter()
                if len(search.parents) > states or now - begun > seconds:
                    return found
                if progress and now - told > 20:
                    told = now
                    progress(
                        f"depth {found.depth} frontier {len(frontier):,} "
                        f"{len(search.parents):,} states"
                    )
            found.depth += bool(search.frontier)
        found.exhausted = True
        search.look_for_circles()
    except Broken as error:
        found.broken = str(error)
        found.story = search.story()
    finally:
        found.states, found.seconds = len(search.parents), time.perf_counter() - begun
    return found


class _Search:
    """What was seen.

    Attributes:
        parents: by hash of a state, whence it was reached first.
        onward: by hash of a state, where its first fair step leads.
        at: where the search is: (hash of the state, step that is being made).
    """

    def __init__(self, model: Model) -> None:
        self.model, self.found = model, Found()
        first = model.start()
        self.frontier: list[State] = [first]
        self.parents: dict[int, tuple[int, Label] | None] = {hash(first): None}
        self.onward: dict[int, int] = {}
        self.at: tuple[int, Label | None] = (hash(first), None)

    def leave(self, state: State) -> None:
        """Make all steps from a state."""
        own, is_resting = hash(state), True
        for label, make in self.model.steps(state):
            self.at = (own, label)
            is_fair = self.model.is_fair(label)
            after = make()
            if after is None:
                is_resting = is_resting and not is_fair
                continue
            self.found.steps += 1
            key = hash(after)
            if is_fair and key != own:
                is_resting = False
                self.onward.setdefault(own, key)
            if key not in self.parents:
                self.parents[key] = (own, label)
                if self.model.covers(after):
                    self.frontier.append(after)
        if is_resting:
            self.at = (own, None)
            self.model.rest(state)

    def look_for_circles(self) -> None:
        """Follow the first fair steps: they must come to a rest, or out of bounds."""
        resting: set[int] = set()
        for begin in self.onward:
            path: dict[int, None] = {}
            key = begin
            while key in self.onward and key not in resting:
                if key in path:
                    self.at = (begin, None)
                    raise Broken("fair steps go round and come to no rest")
                path[key] = None
                key = self.onward[key]
            resting.update(path)

    def story(self) -> list[Label]:
        """How the search came where it is."""
        key, last = self.at
        labels = [] if last is None else [last]
        while (parent := self.parents[key]) is not None:
            key, label = parent
            labels.append(label)
        return labels[::-1]
