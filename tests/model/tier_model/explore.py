"""Breadth-first search over the states of a model: each counterexample is a shortest one.

A state is a nested tuple and is remembered by its 64-bit hash with its parent and the label of the
step between: two of five million states share a hash with a chance below one in a million.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

Label = tuple[Any, ...]


class Step(NamedTuple):
    """One thing that can happen next."""

    label: Label
    state: Any
    fair: bool  # happens some time, if it stays possible; a fault or a client's wish need not


class Model(Protocol):
    """What the search asks of a model."""

    def first(self) -> Any: ...
    def steps(self, state: Any) -> list[Step]: ...
    def broken(self, state: Any, steps: Sequence[Step]) -> str | None: ...
    def show(self, state: Any) -> str: ...


@dataclass
class Result:
    """What a search has seen."""

    states: int = 0
    step_count: int = 0
    depth: int = 0
    seconds: float = 0.0
    exhausted: bool = False
    broken: str | None = None
    labels: list[Label] = field(default_factory=list)  # from the first state to the broken one
    kinds: Counter[str] = field(default_factory=Counter)  # how often each kind of step was taken

    @property
    def verdict(self) -> str:
        if self.broken:
            return "counterexample"
        return "exhausted" if self.exhausted else "cut off"


class Search:
    """One breadth-first search."""

    def __init__(self, model: Model, *, states_max: int, seconds_max: float) -> None:
        self.model = model
        self.states_max = states_max
        self.ends = time.perf_counter() + seconds_max
        self.parents: dict[int, tuple[int, Label] | None] = {}
        self.schedule: dict[int, int] = {}  # the first fair step of each state
        self.result = Result()

    def run(self) -> Result:
        began, result = time.perf_counter(), self.result
        first = self.model.first()
        self.parents[hash(first)] = None
        frontier, cut = [first], False
        while frontier and not cut and result.broken is None:
            frontier, cut = self.next_frontier(frontier)
            result.depth += result.broken is None
        result.exhausted = not cut and result.broken is None
        if result.exhausted:
            self.look_for_livelock()
        result.states, result.seconds = len(self.parents), time.perf_counter() - began
        return result

    def next_frontier(self, frontier: list[Any]) -> tuple[list[Any], bool]:
        found: list[Any] = []
        for state in frontier:
            here = hash(state)
            steps = self.model.steps(state)
            self.take(here, steps, found)
            self.result.broken = self.model.broken(state, steps)
            if self.result.broken is not None:
                self.result.labels = self.labels_to(here)
                return found, False
            if self.is_over():
                return found, True
        return found, False

    def take(self, here: int, steps: Sequence[Step], found: list[Any]) -> None:
        parents, schedule = self.parents, self.schedule
        self.result.step_count += len(steps)
        self.result.kinds.update(label[0] for label, _, _ in steps)
        for label, state, fair in steps:
            there = hash(state)
            if fair and there != here:
                schedule.setdefault(here, there)
            if there not in parents:
                parents[there] = (here, label)
                found.append(state)

    def is_over(self) -> bool:
        count = len(self.parents)
        return count > self.states_max or (
            self.result.step_count % 64 == 0 and time.perf_counter() > self.ends
        )

    def labels_to(self, there: int) -> list[Label]:
        labels = []
        while (parent := self.parents[there]) is not None:
            there, label = parent
            labels.append(label)
        return labels[::-1]

    def look_for_livelock(self) -> None:
        """One fair schedule must come to rest from every state."""
        at_rest_later: set[int] = set()
        for start in self.schedule:
            path: list[int] = []
            on_path: set[int] = set()
            here = start
            while here in self.schedule and here not in at_rest_later:
                if here in on_path:
                    self.result.broken = "a fair schedule never comes to rest"
                    self.result.labels = self.labels_to(here)
                    return
                on_path.add(here)
                path.append(here)
                here = self.schedule[here]
            at_rest_later.update(path)


def explore(model: Model, *, states_max: int = 5_000_000, seconds_max: float = 300.0) -> Result:
    """Search until everything is seen, something is broken, or a limit is reached."""
    return Search(model, states_max=states_max, seconds_max=seconds_max).run()


def story(model: Model, labels: Sequence[Label]) -> str:
    """Take the steps again and show each state on the way."""
    state, lines = model.first(), []
    for number, label in enumerate(labels, 1):
        state = next(step.state for step in model.steps(state) if step.label == label)
        lines.append(f"{number:4d} {' '.join(map(str, label)):34s} {model.show(state)}")
    return "\n".join(lines)
