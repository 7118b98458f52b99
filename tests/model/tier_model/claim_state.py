"""A state of the model of the claim, its bounds and rules.

One machine, a copy of its directories, and the store that both write to. P writes to the store,
stops, is killed, starts. At some time its directories are copied; at some time the copy is started
as Q, whether P is dead (a restored backup) or goes on (a clone); it may be put back over Q once
more. Nothing but the store can tell them apart. What is written is left out: only who has written
counts, and whether the other one's files know of it. A claim is taken in two steps: read, judged
and noted in the file; then put into the store.

The promise is measured by intervals: a write is *told* when its machine has since taken the claim
at a start, at a clean stop, or has run for an interval after it with a store that answered.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

NONE, DAMAGED = -1, -2  # what the store may hold instead of a number
NAMES = "PQ"


@dataclass(frozen=True)
class ClaimSetup:
    """Bounds, then rules with the value of docs/tiering.md, then what is demanded."""

    cold: bool = False  # directories are copied only while P is stopped
    backup: bool = False  # Q starts only when P is dead
    copies: bool = True
    damages: int = 0  # a counter's file lost, or the claim in the store damaged
    failures: int = 0  # claims that are not read or put
    late: int = 0  # puts of a claim whose outcome is unknown: they land later, or never
    attempts: int = 3  # so many later claims it may outlast
    clock: str = (
        "right"  # right | apart: of any machine, any time | equal: and the same number twice
    )
    at_once: bool = True  # no claim is read between another's reading and its put
    claims: bool = True
    judged_by: str = "known"  # counter: as the start found it | last: the highest noted | known
    remembered: int = 3  # numbers in the file; the code keeps more
    work_waits: bool = True  # no copy or deletion before the claim is taken in this start
    renewed: bool = True  # every interval
    renewal_reads: bool = True
    at_stop: bool = True
    stop_waits: bool = True  # a renewal that runs at the stop does not count as the stop's claim
    noted: str = "before"  # before | after: the put
    above_found: bool = True  # the next number is above the one in the store
    damaged: str = "waits"  # waits | none: as if the store held none
    command_notes: bool = True
    command_forgets: bool = False  # which claim it found
    obeyed: bool = True  # the other machine never starts again after the command
    command_puts: bool = True  # a new claim in place of a damaged one; else it removes it
    promises_untold: bool = False  # also writes that are younger than an interval
    promises_fileless: bool = False  # also copies that hold no number


class Phase(IntEnum):
    """How far a machine's tier has come."""

    ABSENT = 0
    OFF = 1
    UNJUDGED = 2
    RED = 3
    GREEN = 4
    STOPPING = 5


class Told(IntEnum):
    """What a machine has written that the other one's files do not know."""

    NOTHING = 0
    UNTOLD = 1
    ALMOST = 2  # the first interval has passed
    TOLD = 3


class Disk(NamedTuple):
    """What a copy of the directories holds."""

    known: tuple[int, ...] = ()  # the claim found last, then those noted since
    counter: int = NONE


class Task(IntEnum):
    """A write to the store that is announced in the machine's topic."""

    NO = 0
    SHARED = 1  # before the directories were copied: both know of it
    OWN = 2


class Machine(NamedTuple):
    disk: Disk = Disk()
    phase: Phase = Phase.ABSENT
    was: int = NONE  # the counter before this start
    noted: int = NONE  # this number's put is under way
    noted_by: int = NONE
    due: bool = False  # the interval has passed
    again: bool = False  # the stop came while a renewal ran
    task: Task = Task.NO
    ahead: Told = Told.NOTHING
    unaware: int = 0  # intervals since the other one claimed, + 1


SHARED, BY_FORMER, ADOPTED = 2, 3, 4  # writers of a claim beside P (0) and Q (1)


class State(NamedTuple):
    machines: tuple[Machine, Machine] = (Machine(phase=Phase.OFF), Machine())
    copied: Disk | None = None
    claim: int = NONE
    by: int = SHARED  # who wrote the claim; SHARED: it was noted before the directories were copied
    flying: tuple[int, int] = (NONE, NONE)  # a put that may land, and whose
    unknown: Told = Told.NOTHING  # what an earlier Q has written
    damages: int = 0
    failures: int = 0
    late: int = 0
    attempts: int = 0  # after so many further claims the put can no longer land
    alarm: str = ""

    def with_machine(self, number: int, **changes: Any) -> "State":
        p, q = self.machines
        if number == 0:
            return self._replace(machines=(p._replace(**changes), q))
        return self._replace(machines=(p, q._replace(**changes)))

    def is_own(self, number: int) -> bool:
        """Whether the files of this machine must know the claim."""
        return self.claim < 0 or self.by in (SHARED, number)

    def is_foreign(self, number: int) -> bool:
        """Whether the claim was written by a history that this machine's files are not part of."""
        return not self.is_own(number) and self.by != ADOPTED

    def numbers(self) -> list[int]:
        found = {self.claim, self.flying[0]}
        if self.copied is not None:
            found |= {*self.copied.known, self.copied.counter}
        for one in self.machines:
            found |= {*one.disk.known, one.disk.counter, one.was, one.noted}
        return sorted(found - {NONE, DAMAGED})


def compressed(state: State) -> State:
    """Only order and sameness of numbers count: 2, 4, 6 and so on."""
    new = {number: 2 * rank + 2 for rank, number in enumerate(state.numbers())}
    new |= {NONE: NONE, DAMAGED: DAMAGED}

    def disk(old: Disk) -> Disk:
        return Disk(tuple(new[number] for number in old.known), new[old.counter])

    p, q = (
        one._replace(disk=disk(one.disk), was=new[one.was], noted=new[one.noted])
        for one in state.machines
    )
    return state._replace(
        machines=(p, q),
        copied=None if state.copied is None else disk(state.copied),
        claim=new[state.claim],
        flying=(new[state.flying[0]], state.flying[1]),
    )
