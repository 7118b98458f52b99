"""The model of the claim: its steps, what must hold. `claim_state.py` says what it is about."""

from collections.abc import Sequence
from typing import Any

from tier_model.claim_state import (
    ADOPTED,
    BY_FORMER,
    DAMAGED,
    NAMES,
    NONE,
    SHARED,
    ClaimSetup,
    Disk,
    Machine,
    Phase,
    State,
    Task,
    Told,
    compressed,
)
from tier_model.explore import Label, Step


class TwoMachines:
    """The first state, the steps, the invariants."""

    def __init__(self, setup: ClaimSetup) -> None:
        self.setup = setup

    def first(self) -> State:
        setup = self.setup
        p = Machine(Disk((FIRST,), FIRST), Phase.OFF)
        left = State(damages=setup.damages, failures=setup.failures, late=setup.late)
        return compressed(left._replace(machines=(p, Machine()), claim=FIRST))

    def steps(self, state: State) -> list[Step]:
        if state.alarm:
            return []
        turn = ClaimTurn(self.setup, state)
        turn.copies_of_directories()
        turn.time()
        turn.lands()
        for number in (0, 1):
            turn.lives(number)
            turn.damages(number)
            turn.claims(number)
            turn.writes(number)
        return turn.found

    def broken(self, state: State, steps: Sequence[Step]) -> str | None:
        if state.alarm:
            return state.alarm
        up = [one for one in state.machines if one.phase > Phase.ABSENT]
        if not any(step.fair for step in steps) and any(one.phase < Phase.GREEN for one in up):
            return "at rest, and not green"
        return None

    def show(self, state: State) -> str:
        lines = [
            f"{NAMES[number]} {one.phase.name} knows {one.disk.known} writes {one.task.name}"
            f" puts {one.noted} ahead {one.ahead.name}"
            for number, one in enumerate(state.machines)
        ]
        lines.append(f"copy {state.copied} claim {state.claim} flying {state.flying[0]}")
        return f"\n{'':9}".join(lines)


class ClaimTurn:
    """Collects what can happen next in one state."""

    def __init__(self, setup: ClaimSetup, state: State) -> None:
        self.setup = setup
        self.state = state
        self.found: list[Step] = []

    def go(self, label: Label, after: State, *, fair: bool = True) -> None:
        self.found.append(Step(label, compressed(after), fair))

    def changed(self, number: int, **changes: Any) -> State:
        return self.state.with_machine(number, **changes)

    # ---- copies of the directories
    def copies_of_directories(self) -> None:
        setup, state = self.setup, self.state
        p, q = state.machines
        if state.copied is None and setup.copies and (p.phase == Phase.OFF or not setup.cold):
            tasks = p._replace(task=Task.SHARED if p.task else Task.NO)
            self.go(
                ("directories-copied",),
                state._replace(copied=p.disk, machines=(tasks, q)),
                fair=False,
            )
        if p.phase != Phase.ABSENT and state.copied is not None:
            self.go(("P-dies",), self.changed(0, **DOWN, phase=Phase.ABSENT), fair=False)
        is_free = q.phase <= Phase.OFF
        if state.copied is not None and is_free and (p.phase == Phase.ABSENT or not setup.backup):
            unknown = max(state.unknown, q.ahead)
            by = BY_FORMER if state.by == 1 else state.by
            flying = (state.flying[0], BY_FORMER) if state.flying[1] == 1 else state.flying
            put_back = state._replace(
                machines=(p, Machine(state.copied, Phase.OFF)),
                unknown=unknown,
                by=by,
                flying=flying,
            )
            self.go(("copy-put-back",), put_back, fair=False)

    # ---- time, lives, damages
    def time(self) -> None:
        """An interval passes: whoever was green all the time has taken its claim again in it."""
        state, renewed = self.state, self.setup.renewed
        green = [number for number in (0, 1) if state.machines[number].phase == Phase.GREEN]
        if not green or any(state.machines[number].due for number in green):
            return
        for number in green:
            one = state.machines[number]
            state = state.with_machine(
                number,
                due=renewed,
                ahead=Told(one.ahead and min(one.ahead + 1, Told.TOLD)),
                unaware=one.unaware and min(one.unaware + 1, UNAWARE_MAX),
            )
        self.go(("an-interval-passes",), state, fair=False)

    def lives(self, number: int) -> None:
        one, name = self.state.machines[number], NAMES[number]
        if one.phase == Phase.OFF:
            disk = one.disk
            if self.setup.judged_by == "counter":
                disk = disk._replace(counter=max(self.state.numbers(), default=0) + 1)
            phase = Phase.UNJUDGED if self.setup.claims else Phase.GREEN
            after = self.changed(number, disk=disk, was=one.disk.counter, phase=phase)
            if not self.setup.claims:
                after = told(after, number)
                if self.unseen(number) == Told.TOLD:
                    after = after._replace(
                        alarm=f"{name} goes on, and does not know what was written"
                    )
            self.go(("start", name), after)
        elif one.phase > Phase.OFF:
            self.go(("kill", name), self.down(self.state, number), fair=False)
        if one.phase == Phase.GREEN:
            self.stops(number, one)

    def stops(self, number: int, one: Machine) -> None:
        """A clean stop; a call that runs may end after it."""
        again = one.noted != NONE and self.setup.stop_waits
        if self.setup.claims and self.setup.at_stop:
            after = self.changed(number, phase=Phase.STOPPING, again=again)
        else:
            after = told(self.changed(number, **DOWN, phase=Phase.OFF), number)
        self.go(("stop", NAMES[number]), after, fair=False)

    def damages(self, number: int) -> None:
        state, one = self.state, self.state.machines[number]
        if not state.damages:
            return
        spent = state._replace(damages=state.damages - 1)
        if one.phase == Phase.OFF and one.disk.known:
            lost = spent.with_machine(number, disk=Disk())
            self.go(("counter-lost", NAMES[number]), lost, fair=False)
        if number == 0 and state.claim >= 0:
            self.go(("claim-damaged",), spent._replace(claim=DAMAGED), fair=False)

    def lands(self) -> None:
        number, by = self.state.flying
        if number != NONE:
            after = self.state._replace(claim=number, by=by, flying=(NONE, NONE), attempts=0)
            self.go(("put-lands",), after, fair=False)

    # ---- the claim
    def claims(self, number: int) -> None:
        one, other = self.state.machines[number], self.state.machines[1 - number]
        asks = one.phase in (Phase.UNJUDGED, Phase.STOPPING) or one.due
        if one.phase <= Phase.OFF:
            return
        if one.noted != NONE:
            self.puts(number, one)
        elif one.phase == Phase.RED:
            self.command(number)
        elif asks and (other.noted == NONE or not self.setup.at_once):
            self.asks(number, one)

    def asks(self, number: int, one: Machine) -> None:
        state, setup, name = self.state, self.setup, NAMES[number]
        reads = one.phase != Phase.GREEN or setup.renewal_reads
        if state.failures and one.phase != Phase.UNJUDGED:
            away = state._replace(failures=state.failures - 1)
            self.go(("store-away", name), self.failed(away, number), fair=False)
        if state.claim == DAMAGED and reads and setup.damaged == "waits":
            if one.phase == Phase.UNJUDGED:
                self.command(number)
            else:
                self.go(("claim-damaged", name), self.failed(state, number))
        elif reads and self.is_foreign(one):
            red = self.changed(number, **DOWN, phase=Phase.RED)
            if state.is_own(number):
                red = red._replace(alarm=f"{name} is red, and nobody else has claimed")
            elif one.phase == Phase.STOPPING:
                red = red.with_machine(number, phase=Phase.OFF)
            self.go(("claim-red", name), red)
        else:
            self.notes(number, one)

    def is_foreign(self, one: Machine) -> bool:
        """Has another start claimed since these directories did?"""
        found, known, setup = self.state.claim, one.disk.known, self.setup
        if found < 0:
            return False
        # Without a number nothing is judged: it goes on above what it finds.
        if setup.judged_by == "counter" and one.phase == Phase.UNJUDGED:
            return one.was != NONE and found > one.was
        if not known:
            return False
        if setup.judged_by == "known":
            return found > min(known) and found not in known
        return found > max(known)

    def notes(self, number: int, one: Machine) -> None:
        """The next number, in the file, fsynced."""
        state, setup = self.state, self.setup
        if self.is_demanded(one):
            alarm = ""
            if state.is_foreign(number):
                alarm = f"{NAMES[number]} takes the claim that another history has taken"
            elif self.is_late(number, one):
                alarm = f"{NAMES[number]} goes on, and does not know what was written"
            if alarm:
                self.go(("notes", NAMES[number]), state._replace(alarm=alarm))
                return
        by = SHARED if state.copied is None else number
        for new in self.drawn(one):
            known = self.remembered(one.disk.known, new)
            counter = NONE if setup.clock == "right" else new
            disk = one.disk if setup.noted == "after" else Disk(known, counter)
            noted = self.changed(number, disk=disk, noted=new, noted_by=by)
            if noted.attempts == 1:
                noted = noted._replace(flying=(NONE, NONE))
            noted = noted._replace(attempts=max(0, noted.attempts - 1))
            if state.is_foreign(number) or self.is_late(number, one):
                noted = adopted(noted, number)
            self.go(("notes", NAMES[number], new), noted)

    def is_demanded(self, one: Machine) -> bool:
        return bool(one.disk.known) or self.setup.promises_fileless

    def is_late(self, number: int, one: Machine) -> bool:
        """Whether a start must have seen what the other machine has written."""
        return one.phase < Phase.GREEN and self.unseen(number) == Told.TOLD

    def unseen(self, number: int) -> Told:
        """What has been written that the files of this machine do not know."""
        p, q = self.state.machines
        return q.ahead if number == 0 else max(p.ahead, self.state.unknown)

    def drawn(self, one: Machine) -> list[int]:
        """The right clock is above all that was ever taken; numbers are even, gaps odd."""
        numbers = self.state.numbers()
        if self.setup.clock == "right":
            return [max(numbers, default=0) + 2]
        found = self.state.claim if self.setup.above_found else NONE
        least = max(found, one.disk.counter, *one.disk.known, 0)
        gaps = [least + 1, *(each + 1 for each in numbers if each > least)]
        if self.setup.clock == "apart":
            return gaps
        return gaps + [each for each in numbers if each > least]

    def remembered(self, known: tuple[int, ...], new: int) -> tuple[int, ...]:
        """What the store may hold from now on: what was found, or a number noted since.

        The floor, which is first, never falls: a late put may land after a later one was found.
        """
        floor = max(self.state.claim, NONE, *known[:1])
        kept = {floor, *(each for each in known if each > floor)}
        ordered = sorted(kept)
        return (*ordered[:1], *ordered[1:][max(0, len(ordered) + 1 - self.setup.remembered) :], new)

    def puts(self, number: int, one: Machine) -> None:
        state, name = self.state, NAMES[number]
        done = state._replace(claim=one.noted, by=one.noted_by)
        other = state.machines[1 - number]
        if one.noted_by == number and other.phase == Phase.GREEN:
            done = done.with_machine(1 - number, unaware=max(other.unaware, 1))
        disk = one.disk
        if self.setup.noted == "after":
            self.go(("put-and-killed", name), self.down(done, number), fair=False)
            disk = Disk((one.noted,), one.noted)
        done = done.with_machine(number, noted=NONE, noted_by=NONE, disk=disk)
        if one.phase == Phase.UNJUDGED:
            after = told(done.with_machine(number, phase=Phase.GREEN, unaware=0), number)
        elif one.phase == Phase.GREEN:
            after = done.with_machine(number, due=False)
        elif one.again:
            after = done.with_machine(number, again=False)
        else:
            after = told(self.down(done, number), number)
        self.go(("put", name), after)
        if state.failures:
            spent = state._replace(failures=state.failures - 1)
            self.go(("put-fails", name), self.failed(spent, number), fair=False)
        if state.late:
            flies = state._replace(
                late=state.late - 1,
                flying=(one.noted, one.noted_by),
                attempts=self.setup.attempts,
            )
            self.go(("nobody-knows-of-the-put", name), self.failed(flies, number), fair=False)

    def failed(self, state: State, number: int) -> State:
        """Not taken: tried again soon at a start, an interval later where it is held."""
        one = state.machines[number]
        if one.phase == Phase.STOPPING and not one.again:
            return self.down(state, number)
        return state.with_machine(
            number, noted=NONE, noted_by=NONE, due=False, again=False, **forgotten(one)
        )

    def down(self, state: State, number: int) -> State:
        """A machine that is down learns what the other one has written when it starts."""
        ahead = untold(state.machines[number].ahead)
        return state.with_machine(number, **DOWN, phase=Phase.OFF, unaware=0, ahead=ahead)

    def command(self, number: int) -> None:
        """A person: these files are to go on with, the other machine never starts again."""
        one, state = self.state.machines[number], self.state
        known = one.disk.known
        highest = max(state.claim, one.disk.counter, *known, 0)
        if state.claim == DAMAGED:
            clock = state.numbers() if self.setup.clock == "right" else []
            highest = max(highest, *clock, 0) + 1
        counter = NONE if self.setup.clock == "right" else highest
        floor = max(state.claim, NONE)
        wanted = tuple(sorted({highest if self.setup.command_forgets else floor, highest}))
        disk = Disk(wanted, counter) if self.setup.command_notes else one.disk
        after = adopted(self.changed(number, **DOWN, disk=disk, phase=Phase.OFF), number)
        other = state.machines[1 - number].phase
        gone = Phase.ABSENT if self.setup.obeyed else min(other, Phase.OFF)
        after = after.with_machine(1 - number, **DOWN, phase=gone)
        if state.claim == DAMAGED:
            after = after._replace(claim=NONE)
            if self.setup.command_puts:
                by = SHARED if state.copied is None else number
                after = after._replace(claim=highest, by=by)
        self.go(("command", NAMES[number]), after)

    # ---- plugin calls that write
    def writes(self, number: int) -> None:
        one, name, setup = self.state.machines[number], NAMES[number], self.setup
        works = one.phase == Phase.GREEN or (one.phase == Phase.UNJUDGED and not setup.work_waits)
        if works and one.task == Task.NO:
            own = number == 1 or self.state.copied is not None
            announced = self.changed(number, task=Task.OWN if own else Task.SHARED)
            self.go(("announces", name), announced, fair=False)
        if one.task != Task.NO and (works or one.phase == Phase.STOPPING):
            after = self.seen(number, one, self.changed(number, task=Task.NO))
            self.go(("writes", name), after, fair=False)

    def seen(self, number: int, one: Machine, after: State) -> State:
        """What the other one's files do not know, and whether this one should have known."""
        strict = self.setup.promises_untold and number == 1
        if (
            one.unaware >= UNAWARE_MAX
            or self.is_late(number, one)
            or (strict and self.unseen(number))
        ):
            return after._replace(alarm=f"{NAMES[number]} writes beside what it does not know of")
        if one.task == Task.OWN:
            after = after.with_machine(number, ahead=max(one.ahead, Told.UNTOLD))
        return after


FIRST = 2
UNAWARE_MAX = 3
DOWN: dict[str, Any] = {
    "noted": NONE,
    "noted_by": NONE,
    "due": False,
    "again": False,
    "task": Task.NO,
}


def forgotten(one: Machine) -> dict[str, Any]:
    """An interval that was not one: the claim was not taken in it."""
    return {
        "ahead": untold(one.ahead),
        "unaware": min(one.unaware, 1),
    }


def untold(ahead: Told) -> Told:
    """The interval begins anew."""
    return Told.UNTOLD if ahead == Told.ALMOST else ahead


def told(state: State, number: int) -> State:
    """The machine has claimed since its last write, and told it so."""
    one = state.machines[number]
    return state.with_machine(number, ahead=Told.TOLD if one.ahead else Told.NOTHING)


def adopted(state: State, number: int) -> State:
    """From here on this machine's history is the right one."""
    state = state.with_machine(1 - number, ahead=Told.NOTHING).with_machine(number, unaware=0)
    unknown = Told.NOTHING if number == 1 else state.unknown
    return state._replace(unknown=unknown, by=ADOPTED)
