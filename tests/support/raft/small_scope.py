"""Every order of events of three cores within small bounds, breadth first.

A state is three replicas, what is on its way between them (one request or answer for each asker
and asked), what is left of the bounds, and what the oracle remembers: who led which epoch and what
was committed. States that differ by names of nodes are one.

Excluded, all of it for the safe side of the search being smaller, none of it able to hide a breach
that needs only what is in: snapshots, a disk that is slow with quorum-state, Fetches that look for
a leader (lost, every one), times (any timeout may come at any moment, but a leader's).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any

from metadata_topic.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    VoteRequest,
)
from tests.support.quorum_world.errors import Violation
from tests.support.raft.scope_local import Entry, Locals, Outcome, canonical, renamed

REQUESTS = (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    VoteRequest,
)


@dataclass(frozen=True)
class Bounds:
    """How much may happen in all.

    Attributes:
        voters: how many there are at first.
        changes: of the voters, which stand in the log then.
        is_static: the first change puts static voters into the log.
        outsiders: controllers without a vote at first.
        searches: Fetches that look for a leader arrive.
    """

    voters: int = 3
    epochs: int = 2
    entries: int = 1
    crashes: int = 0
    losses: int = 0
    timeouts: int = 2
    changes: int = 0
    outsiders: int = 0
    is_static: bool = False
    searches: bool = False

    def __str__(self) -> str:
        changes = f" changes={self.changes} voters={self.voters}" if self.changes else ""
        changes += " static" if self.is_static else ""
        return (
            f"epochs={self.epochs} entries={self.entries} crashes={self.crashes} "
            f"losses={self.losses} timeouts={self.timeouts}{changes}"
        )

    @property
    def nodes(self) -> int:
        """Voters at first, and controllers without a vote."""
        return self.voters + self.outsiders


@dataclass(frozen=True, slots=True)
class State:
    """See the module.

    Attributes:
        locals: numbers of the replicas' states.
        slots: (asker, asked) to the message on its way, a request or its answer.
        leaders: (epoch, node).
        committed: entries.
        marks: (epoch of the leader, how many of them it had committed), by rising epoch.
    """

    locals: tuple[int, ...]
    slots: tuple[int, ...]
    entries: int
    crashes: int
    losses: int
    timeouts: int
    changes: int = 0
    leaders: tuple[tuple[int, int], ...] = ()
    committed: tuple[Entry, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Found:
    """What a search saw.

    Attributes:
        exhausted: there is no further state within the bounds.
        levels: states by distance from the start.
        story: events that led to the breach.
    """

    bounds: Bounds
    states: int
    seconds: float
    exhausted: bool
    levels: tuple[int, ...]
    violation: Violation | None = None
    story: tuple[str, ...] = ()


Happens = Callable[[], Iterator[tuple[str, State]]]
"""An event: gives its name and the state that it leads to, or nothing."""


class Scope:
    """Successors of states, within bounds."""

    def __init__(self, bounds: Bounds, *, is_plain: bool = False) -> None:
        """Begin with none; `is_plain`: states that differ by names are told apart."""
        self.bounds = bounds
        count = bounds.nodes
        first, others = range(1, bounds.voters + 1), range(bounds.voters + 1, count + 1)
        self._permutations = tuple(
            (0, *one, *other) for one in permutations(first) for other in permutations(others)
        )
        if is_plain:
            self._permutations = self._permutations[:1]
        self.locals = Locals(
            bounds.voters,
            self._permutations,
            flushes_at_once=not bounds.crashes,
            has_changes=bounds.changes > 0,
            is_static=bounds.is_static,
            searches=bounds.searches,
        )
        self._pairs = [
            (one, other)
            for one in range(1, count + 1)
            for other in range(1, count + 1)
            if one != other
        ]
        self._place = {pair: place for place, pair in enumerate(self._pairs)}
        self._messages: list[Any] = [None]
        self._message_numbers: dict[Any, int] = {None: 0}
        self._message_places: list[tuple[int, ...]] = [(0,) * len(self._permutations)]
        self._message_keys: dict[Any, int] = {}
        self._moved_slots = [
            tuple(self._place[places[a], places[b]] for a, b in self._pairs)
            for places in self._permutations
        ]

    def first(self) -> State:
        """Empty disks."""
        bounds = self.bounds
        found = [self.locals.first(node) for node in range(1, bounds.nodes + 1)]
        slots = [0] * len(self._pairs)
        for node, one in enumerate(found, 1):
            for to, request in one.sends:
                slots[self._place[node, to]] = self._number(request)
        return State(
            tuple(one.local for one in found),
            tuple(slots),
            bounds.entries,
            bounds.crashes,
            bounds.losses,
            bounds.timeouts,
            bounds.changes,
        )

    def _number(self, message: Any) -> int:
        number = self._message_numbers.get(message)
        if number is None:
            number = self._message_numbers[message] = len(self._messages)
            self._messages.append(message)
            self._message_places.append(
                tuple(
                    self._message_keys.setdefault(
                        canonical(message, p), len(self._message_keys) + 1
                    )
                    for p in self._permutations
                )
            )
        return number

    def canonical(self, state: State) -> int:
        """A number that is the same for states that differ by names only."""
        best: tuple[Any, ...] | None = None
        here, local_places = state.locals, self.locals.places
        for place, names in enumerate(self._permutations):
            moved = [0] * len(here)
            for node, number in enumerate(here):
                moved[names[node + 1] - 1] = local_places[number][place]
            if best is not None and tuple(moved) > best[0]:
                continue
            slots = [0] * len(state.slots)
            for target, message in zip(self._moved_slots[place], state.slots, strict=True):
                slots[target] = self._message_places[message][place]
            leaders = tuple((epoch, names[node]) for epoch, node in state.leaders)
            committed = tuple(
                int.from_bytes(renamed(payload, names), "big") for _, payload in state.committed
            )
            one = (tuple(moved), tuple(slots), leaders, committed, state.marks)
            if best is None or one < best:
                best = one
        left = state.entries, state.crashes, state.losses, state.timeouts, state.changes
        return hash((best, left))

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """All that can happen next."""
        for event in self.events(state):
            yield from event()

    def events(self, state: State) -> Iterator[Happens]:
        """All that can happen next, not yet carried out; each comes to one state at most."""
        kinds = (
            self.arrivals, self.losses, self.timeouts, self.flushes, self.appends, self.changes,
            self.crashes,
        )  # fmt: skip
        for kind in kinds:
            yield from kind(state)

    def arrivals(self, state: State) -> Iterator[Happens]:
        """All messages that can arrive next."""
        for (asker, asked), place in self._place.items():
            if state.slots[place]:
                yield partial(self._arrives, state, asker, asked, place)

    def losses(self, state: State) -> Iterator[Happens]:
        """All messages that can be lost next."""
        for (asker, asked), place in self._place.items():
            if state.slots[place] and state.losses:
                yield partial(self._is_lost, state, asker, asked, place)
            elif self.bounds.searches and not state.slots[place]:
                # Whoever was asked has ended: an asker without a vote would wait for ever.
                step = partial(self.locals.answer, state.locals[asker - 1], asked, None)
                yield self._event(state, asker, step, f"n{asker} waits in vain for n{asked}")

    def timeouts(self, state: State) -> Iterator[Happens]:
        """All replicas that wait for something may do so in vain."""
        less = replace(state, timeouts=state.timeouts - 1)
        for node, number in enumerate(state.locals, 1):
            if state.timeouts:
                step = partial(self.locals.time_out, number)
                yield self._event(less, node, step, f"n{node} times out")

    def flushes(self, state: State) -> Iterator[Happens]:
        """All flushes under way can be done."""
        for node, number in enumerate(state.locals, 1):
            step = partial(self.locals.flush, number)
            yield self._event(state, node, step, f"n{node} has flushed")

    def appends(self, state: State) -> Iterator[Happens]:
        """All leaders can decide something."""
        less = replace(state, entries=state.entries - 1)
        which = self.bounds.entries - state.entries + 1
        for node, number in enumerate(state.locals, 1):
            if state.entries:
                step = partial(self.locals.propose, number, which)
                yield self._event(less, node, step, f"n{node} appends entry {which}")

    def changes(self, state: State) -> Iterator[Happens]:
        """All leaders can add or remove a voter."""
        less = replace(state, changes=state.changes - 1)
        for node, number in enumerate(state.locals, 1):
            is_leader = self.locals.values[number].core.epoch_start_offset is not None
            if state.changes and is_leader:
                for other in range(1, self.bounds.nodes + 1):
                    step = partial(self.locals.change, number, other)
                    yield self._event(less, node, step, f"n{node} adds or removes n{other}")

    def crashes(self, state: State) -> Iterator[Happens]:
        """All replicas can end, and start with what is flushed and some of what is not."""
        for node, number in enumerate(state.locals, 1):
            if state.crashes:
                slots = tuple(
                    0 if node == asker or (node == asked and self._is_answer(message)) else message
                    for (asker, asked), message in zip(self._pairs, state.slots, strict=True)
                )
                less = replace(state, crashes=state.crashes - 1, slots=slots)
                local = self.locals.values[number]
                for kept in range(len(local.log) - local.flushed + 1):
                    step = partial(self.locals.crash, number, kept)
                    label = f"n{node} crashes, {kept} unflushed entries stay"
                    yield self._event(less, node, step, label)

    def _event(
        self, less: State, node: int, step: Callable[[], Outcome | None], label: str
    ) -> Happens:
        return lambda: self._after(less, node, step(), label)

    def _arrives(
        self, state: State, asker: int, asked: int, place: int
    ) -> Iterator[tuple[str, State]]:
        message = self._messages[state.slots[place]]
        without = _without(state, place)
        name = type(message).__name__
        if isinstance(message, REQUESTS):
            outcome = self.locals.deliver(state.locals[asked - 1], message)
            yield from self._after(
                without, asked, outcome, f"n{asked} has {name} of n{asker}", place
            )
            return
        outcome = self.locals.answer(state.locals[asker - 1], asked, message)
        label = f"n{asker} has {name} of n{asked}"
        if outcome is None:
            yield label, without
        else:
            yield from self._after(without, asker, outcome, label)

    def _is_lost(
        self, state: State, asker: int, asked: int, place: int
    ) -> Iterator[tuple[str, State]]:
        name = type(self._messages[state.slots[place]]).__name__
        less = replace(_without(state, place), losses=state.losses - 1)
        outcome = self.locals.answer(state.locals[asker - 1], asked, None)
        label = f"{name} between n{asker} and n{asked} is lost"
        if outcome is None:
            yield label, less
        else:
            yield from self._after(less, asker, outcome, label)

    def _is_answer(self, number: int) -> bool:
        return number > 0 and not isinstance(self._messages[number], REQUESTS)

    def _after(
        self, state: State, node: int, outcome: Outcome | None, label: str, answered: int = -1
    ) -> Iterator[tuple[str, State]]:
        if outcome is None:
            return
        locals_ = list(state.locals)
        locals_[node - 1] = outcome.local
        local = self.locals.values[outcome.local]
        if local.core.epoch > self.bounds.epochs:
            return
        slots = list(state.slots)
        if answered >= 0:
            slots[answered] = self._number(outcome.answer)
        for to, request in outcome.sends:
            slots[self._place[node, to]] = self._number(request)
        self._drop_unawaited(locals_, slots)
        after = replace(state, locals=tuple(locals_), slots=tuple(slots))
        if outcome.led is not None:
            after = self._led(after, node, outcome.led)
        if outcome.commit is not None:
            after = self._committed(after, node, outcome.commit)
        if outcome.local != state.locals[node - 1]:
            self._logs_match(after, node)
        yield label, after

    def _drop_unawaited(self, locals_: list[int], slots: list[int]) -> None:
        """Take away answers that their askers do not wait for any more: they change nothing."""
        for place, (asker, asked) in enumerate(self._pairs):
            if self._is_answer(slots[place]):
                message = self._messages[slots[place]]
                if not self.locals.awaits(locals_[asker - 1], asked, message):
                    slots[place] = 0

    # What must hold

    def _led(self, state: State, node: int, epoch: int) -> State:
        if any(one == epoch for one, _ in state.leaders):
            raise Violation("one leader an epoch", f"n{node} in {epoch}: {state.leaders}")
        log = self.locals.values[state.locals[node - 1]].log
        if not _has_committed(state, epoch, log):
            raise Violation("a leader has all that was ever committed", f"n{node}: {log}")
        return replace(state, leaders=tuple(sorted((*state.leaders, (epoch, node)))))

    def _committed(self, state: State, node: int, end: int) -> State:
        log = self.locals.values[state.locals[node - 1]].log
        common = min(end, len(state.committed))
        if tuple(log[:common]) != state.committed[:common]:
            raise Violation("nothing committed changes", f"n{node}: {log}, {state.committed}")
        if end <= len(state.committed):
            return state
        committed = tuple(log[:end])
        voters = self.locals.values[state.locals[node - 1]].core.voters.ids
        holders = 0
        for voter in voters:
            local = self.locals.values[state.locals[voter - 1]]
            holders += local.flushed >= end and tuple(local.log[:end]) == committed
        if holders <= len(voters) // 2:
            raise Violation(
                "what is committed is on the disks of a majority", f"n{node}: {committed}"
            )
        epoch = self.locals.values[state.locals[node - 1]].core.epoch
        marks = (*(one for one in state.marks if one[0] != epoch), (epoch, end))
        after = replace(state, committed=committed, marks=marks)
        for number in state.locals:
            local = self.locals.values[number]
            if local.core.epoch_start_offset is None:
                continue
            if not _has_committed(after, local.core.epoch, local.log):
                raise Violation("a leader has all that was ever committed", f"{local.log}")
        return after

    def _logs_match(self, state: State, node: int) -> None:
        mine = self.locals.values[state.locals[node - 1]].log
        for number in state.locals:
            other = self.locals.values[number].log
            end = min(len(mine), len(other))
            while end and mine[end - 1][0] != other[end - 1][0]:
                end -= 1
            if mine[:end] != other[:end]:
                raise Violation("the same offset and epoch are the same bytes", f"{mine} {other}")


def _without(state: State, place: int) -> State:
    slots = list(state.slots)
    slots[place] = 0
    return replace(state, slots=tuple(slots))


def _has_committed(state: State, epoch: int, log: list[Entry]) -> bool:
    """Whether a leader's log has what was committed in its epoch and before."""
    end = max((end for one, end in state.marks if one <= epoch), default=0)
    return tuple(log[:end]) == state.committed[:end]


def search(bounds: Bounds, seconds: float, states_max: int = 4_000_000) -> Found:
    """Look at all states within bounds, or at as many as the time allows."""
    scope = Scope(bounds)
    began = time.monotonic()
    first = scope.first()
    parents = {scope.canonical(first): 0}
    level = [first]
    levels = [1]
    while level:
        following: list[State] = []
        for state in level:
            mine = scope.canonical(state)
            try:
                for _, after in scope.successors(state):
                    key = scope.canonical(after)
                    if key not in parents:
                        parents[key] = mine
                        following.append(after)
            except Violation as violation:
                story = tuple(_story(scope, parents, mine))
                spent = time.monotonic() - began
                return Found(bounds, len(parents), spent, False, tuple(levels), violation, story)
            if time.monotonic() - began > seconds or len(parents) > states_max:
                spent = time.monotonic() - began
                return Found(bounds, len(parents), spent, False, tuple(levels))
        level = following
        if level:
            levels.append(len(level))
    return Found(bounds, len(parents), time.monotonic() - began, True, tuple(levels))


def _story(scope: Scope, parents: dict[int, int], last: int) -> Iterator[str]:
    """The events on the way to a state, and after it the one that breaks a rule."""
    chain = [last]
    while parents[chain[-1]]:
        chain.append(parents[chain[-1]])
    chain.reverse()
    state = scope.first()
    for wanted in chain[1:]:
        for label, after in scope.successors(state):
            if scope.canonical(after) == wanted:
                yield label
                state = after
                break
