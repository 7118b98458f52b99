"""The faults that are in force, and their effect on a request. Pure: rng and time are arguments.

Faults are matched in the order in which they were added. Each match counts a hit; so a request may
hit several. Their delays add up. A slot of the answer gets the code of the first of them. A cut
ends the matching, since a cut request has no answer.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker.testing.faults.naming import Named
from broker.testing.faults.rule import FaultError, RequestFault, api_name

FAULTS_MAX: Final = 1_000
HITS_KEPT: Final = 1_000
"""Newest hits kept of each fault; all of them are counted."""

Fault = Any
"""A `RequestFault`, or a fault of the store: the book uses only fields that both have."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The known properties of a request.

    Attributes:
        named: None where it was not needed: no fault asks for a topic.
    """

    api_key: int
    version: int
    client_id: str
    named: Named | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit: its time (wall clock), and the API or call."""

    at_ms: int
    what: str
    version: int
    client_id: str


@dataclass(slots=True)
class Entry:
    """A fault in the book.

    Attributes:
        hits: Their number; `last` has the newest of them.
        roll: Draws from the fault's rng.
        is_removed: It was removed; requests that it delays continue.
    """

    id: int
    fault: Fault
    roll: Callable[[], float]
    hits: int = 0
    is_removed: bool = False
    last: deque[Hit] = field(default_factory=lambda: deque(maxlen=HITS_KEPT))

    @property
    def is_over(self) -> bool:
        """True if it has had all its hits."""
        return self.fault.count is not None and self.hits >= self.fault.count

    def hit(self, hit: Hit) -> None:
        """Count one."""
        self.hits += 1
        self.last.append(hit)


@dataclass(frozen=True, slots=True)
class Decision:
    """The effect of all faults on a request.

    Attributes:
        delays: The faults that it waits for first, one after the other.
        cut: The fault that cuts its connection, None where none does.
        errors: The faults whose codes go into its answer; the first one that matches a slot wins.
    """

    delays: tuple[Entry, ...] = ()
    cut: Entry | None = None
    errors: tuple[Entry, ...] = ()


class FaultBook:
    """Faults by id."""

    def __init__(self, seeded: Callable[[int], Callable[[], float]]) -> None:
        """Begin empty; `seeded` makes an rng from a seed."""
        self._seeded = seeded
        self._entries: dict[int, Entry] = {}
        self._last_id = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def add(self, fault: Fault) -> Entry:
        """Put a fault in force.

        Raises:
            FaultError: There are too many.
        """
        if len(self._entries) >= FAULTS_MAX:
            raise FaultError(f"there are {FAULTS_MAX} faults, the most there can be: remove some")
        self._last_id += 1
        entry = Entry(self._last_id, fault, self._seeded(fault.seed))
        self._entries[entry.id] = entry
        return entry

    def get(self, fault_id: int) -> Entry:
        """The fault of that id.

        Raises:
            FaultError: There is none.
        """
        entry = self._entries.get(fault_id)
        if entry is None:
            raise FaultError(f"id={fault_id}: no such fault; it may have been removed")
        return entry

    def remove(self, fault_id: int) -> Entry:
        """Remove a fault.

        Raises:
            FaultError: There is none of that id.
        """
        entry = self.get(fault_id)
        del self._entries[fault_id]
        entry.is_removed = True
        return entry

    def clear(self) -> list[Entry]:
        """Remove all faults, and return them."""
        return [self.remove(fault_id) for fault_id in list(self._entries)]

    # -- of requests

    def in_force(self, api_key: int, client_id: str | None = None) -> list[Entry]:
        """Faults that may hit requests of an API, from a client or from any."""
        return [
            one
            for one in self._entries.values()
            if isinstance(one.fault, RequestFault)
            and not one.is_over
            and one.fault.api in (None, api_key)
            and (client_id is None or one.fault.client_id in (None, client_id))
        ]

    def needs_names(self, api_key: int, client_id: str) -> bool:
        """True if some fault that may hit a client's request asks for a topic."""
        return any(one.fault.topic is not None for one in self.in_force(api_key, client_id))

    def decide(self, facts: Facts, now_ms: int) -> Decision | None:
        """Return the effect on a request, and count its hits.

        Args:
            facts: With `named` where `needs_names` is true.
            now_ms: Wall clock, for the hits.

        Returns:
            None where no fault hits it.
        """
        delays, cut, errors, is_hit = list[Entry](), None, list[Entry](), False
        for entry in self.in_force(facts.api_key):
            fault: RequestFault = entry.fault
            if not matches(fault, facts) or not _falls(entry):
                continue
            is_hit = True
            name = api_name(facts.api_key)
            entry.hit(Hit(now_ms, name, facts.version, facts.client_id))
            if fault.delay_ms:
                delays.append(entry)
            if fault.error is not None:
                errors.append(entry)
            if fault.cut is not None:
                cut = entry
                break
        return Decision(tuple(delays), cut, tuple(errors)) if is_hit else None


def _falls(entry: Entry) -> bool:
    """Draw from the fault's rng; without a draw where it hits always."""
    return bool(entry.fault.probability >= 1 or entry.roll() < entry.fault.probability)


def matches(fault: RequestFault, facts: Facts) -> bool:
    """True if a request of the fault's API has its client id, topic and partition."""
    if fault.client_id is not None and fault.client_id != facts.client_id:
        return False
    if fault.topic is None:
        return True
    return facts.named is not None and facts.named.includes(fault.topic, fault.partition)
