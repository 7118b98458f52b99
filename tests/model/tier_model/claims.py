"""The model of the claim: one machine, a copy of its directories, and the store that both write to.

P copies, expires, deletes and restarts. At some time its directories are copied (log, metadata
topic, counter: all that one machine holds); at some time the copy is started as Q, whether P is
dead (a restored backup) or goes on (a clone). Nothing but the store can tell them apart. A plugin
call that writes is one step; reads need no claim.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from tier_model.explore import Label, Step

STARTED, FINISHED, DELETE_STARTED = "SFD"
MISSING = -1
NAMES = "PQ"


@dataclass(frozen=True)
class ClaimSetup:
    """Bounds, then rules with the value of docs/tiering.md or of what is proposed there."""

    ids: int = 3
    offsets: int = 2
    restarts: int = 1  # of each machine
    raises: int = 1
    cold: bool = False  # directories are copied only while P is stopped
    backup: bool = False  # Q starts only when P is dead
    fileless: bool = False  # the copy lacks the file of the counter and of what was claimed
    claims: bool = True
    judged_by: str = "token"  # counter: of starts | number: last claimed here | token: see judges
    work_waits: bool = True  # no copy or deletion before the claim was judged in this start
    expiry_waits: bool = True  # and no local expiry
    renewed: str = "after"  # start: only then | before | after: the record that announces a write
    owner: bool = True  # a claim names the start that wrote it; equal numbers are told apart
    at_once: bool = True  # no other start falls between reading a claim and the write it covers
    missing: str = "red"  # a claim, and none in the directories: goes on | red


class Phase(IntEnum):
    """How far a machine's tier has come."""

    ABSENT = 0
    OFF = 1
    UNJUDGED = 2
    GREEN = 3
    RED = 4


class Claim(NamedTuple):
    """The object in the store, and in the directories what they last claimed."""

    number: int = MISSING
    owner: int = MISSING  # drawn anew for each claim; here the machine's number serves


class Disk(NamedTuple):
    """What a copy of the directories holds."""

    counter: int = 0
    claimed: Claim = Claim()  # the claim that was in the store before the last one was written
    pending: Claim = Claim()  # the last one
    log_start: int = 0
    local_start: int = 0
    segments: tuple[tuple[int, str], ...] = ()  # (id, state) as the machine's own topic says


class Machine(NamedTuple):
    disk: Disk
    phase: Phase
    was: int = 0  # the counter before this start
    fresh: bool = False  # claimed for the next record (renewed: before)
    task: tuple[str, int] | None = None  # what is under way for which id
    read: bool = False  # it has read the claim and will write it
    restarts: int = 0
    raises: int = 0


class State(NamedTuple):
    machines: tuple[Machine, Machine]
    copied: Disk | None  # the copy that was taken
    claim: Claim
    offsets: tuple[int, ...]  # of each segment id
    objects: int
    unannounced: bool = False  # P has written what the copy knows nothing of
    q_wrote: bool = False
    alarm: str = ""


def with_state(disk: Disk, one: int, state: str | None) -> Disk:
    segments = dict(disk.segments)
    segments.pop(one, None)
    if state is not None:
        segments[one] = state
    return disk._replace(segments=tuple(sorted(segments.items())))


class TwoMachines:
    """The first state, the steps, the invariants."""

    def __init__(self, setup: ClaimSetup) -> None:
        self.setup = setup

    def first(self) -> State:
        setup = self.setup
        first = Machine(Disk(), Phase.OFF, restarts=setup.restarts + 1, raises=setup.raises)
        absent = Machine(Disk(), Phase.ABSENT)
        return State((first, absent), None, Claim(), (), 0)

    def steps(self, state: State) -> list[Step]:
        if state.alarm:
            return []
        turn = ClaimTurn(self.setup, state)
        turn.copies_of_directories()
        for number in (0, 1):
            turn.lives(number)
            turn.claims(number)
            turn.works(number)
            turn.writes(number)
        return turn.found

    def broken(self, state: State, steps: Sequence[Step]) -> str | None:
        if state.alarm:
            return state.alarm
        for number, machine in enumerate(state.machines):
            latest = state.claim.owner == number or not self.setup.claims
            if machine.phase == Phase.GREEN and latest:
                lost = self.unreadable(state, machine.disk)
                if lost is not None:
                    return f"{NAMES[number]} is green, holds the claim, and {lost}"
        if not any(step.fair for step in steps) and state.machines[0].phase == Phase.UNJUDGED:
            return "at rest, the claim was never judged"
        return None

    def unreadable(self, state: State, disk: Disk) -> str | None:
        for offset in range(disk.log_start, disk.local_start):
            held = [
                one
                for one, what in disk.segments
                if what == FINISHED and state.offsets[one] == offset and state.objects >> one & 1
            ]
            if not held:
                return f"offset {offset} is in no tier"
        return None

    def show(self, state: State) -> str:
        lines = [
            f"{NAMES[number]} {Phase(one.phase).name} {one.disk} does {one.task}"
            for number, one in enumerate(state.machines)
        ]
        lines.append(f"copy {state.copied} {state.claim} store {state.objects:b}")
        return f"\n{'':9}".join(lines)


class ClaimTurn:
    """Collects what can happen next in one state."""

    def __init__(self, setup: ClaimSetup, state: State) -> None:
        self.setup = setup
        self.state = state
        self.found: list[Step] = []

    def go(self, label: Label, *, fair: bool = True, **changes: Any) -> None:
        self.found.append(Step(label, self.state._replace(**changes), fair))

    def machine(self, number: int, **changes: Any) -> tuple[Machine, ...]:
        machines = list(self.state.machines)
        machines[number] = machines[number]._replace(**changes)
        return tuple(machines)

    def copies_of_directories(self) -> None:
        setup, state = self.setup, self.state
        p, q = state.machines
        if state.copied is None and (p.phase == Phase.OFF or not setup.cold):
            disk = p.disk
            if setup.fileless:
                disk = disk._replace(counter=MISSING, claimed=Claim(), pending=Claim())
            self.go(("directories-copied",), fair=False, copied=disk, unannounced=False)
        dead = p.phase == Phase.ABSENT
        if state.copied is not None and q.phase == Phase.ABSENT and (dead or not setup.backup):
            start = Machine(
                state.copied, Phase.OFF, restarts=setup.restarts + 1, raises=setup.raises
            )
            self.go(("copy-appears",), fair=False, machines=(p, start))
        if p.phase != Phase.ABSENT:
            gone = self.machine(0, phase=Phase.ABSENT, task=None, read=False, fresh=False)
            self.go(("P-dies",), fair=False, machines=gone)

    def lives(self, number: int) -> None:
        """Starts raise the counter; a tier may be killed at any step."""
        one, name = self.state.machines[number], NAMES[number]
        if one.phase == Phase.OFF and one.restarts:
            counter = one.disk.counter
            if self.setup.judged_by == "counter":
                counter = max(counter, self.state.claim.number if counter == MISSING else 0) + 1
            started = self.machine(
                number,
                disk=one.disk._replace(counter=counter),
                was=one.disk.counter,
                phase=Phase.UNJUDGED if self.setup.claims else Phase.GREEN,
                restarts=one.restarts - 1,
            )
            self.go(("start", name), machines=started)
        elif one.phase > Phase.OFF:
            off = self.machine(number, phase=Phase.OFF, task=None, read=False, fresh=False)
            self.go(("kill", name), fair=False, machines=off)

    # ---- the claim
    def claims(self, number: int) -> None:
        one, name = self.state.machines[number], NAMES[number]
        if one.phase != Phase.UNJUDGED:
            return
        if one.read:
            self.write_claim(number, one._replace(phase=Phase.GREEN, read=False))
        elif self.is_foreign(one):
            self.go(("claim-red", name), machines=self.machine(number, phase=Phase.RED))
        elif self.setup.at_once:
            self.write_claim(number, one._replace(phase=Phase.GREEN))
        else:
            self.go(("reads-claim", name), machines=self.machine(number, read=True))

    def is_foreign(self, one: Machine) -> bool:
        """Has another start claimed since these directories did?

        By token: the claim is neither the one that these directories last saw nor the one that
        they were about to write.
        """
        claim, disk = self.state.claim, one.disk
        if self.setup.judged_by == "counter":
            mine = one.was
        else:
            mine = max(disk.claimed.number, disk.pending.number)
        if mine == MISSING:
            return claim.number != MISSING and self.setup.missing == "red"
        if self.setup.judged_by == "token":
            known = (disk.claimed, disk.pending)
            if not self.setup.owner:
                return claim.number not in [other.number for other in known]
            return claim not in known
        return claim.number > mine

    def write_claim(self, number: int, after: Machine) -> None:
        """First in the directories, fsynced; then in the store."""
        disk, state = after.disk, self.state
        highest = max(disk.pending.number, state.claim.number, disk.counter)
        new = disk.counter if self.setup.judged_by == "counter" else highest + 1
        claim = Claim(new, number)
        machines = list(state.machines)
        machines[number] = after._replace(disk=disk._replace(claimed=state.claim, pending=claim))
        self.go(("writes-claim", NAMES[number]), machines=tuple(machines), claim=claim)
        if state.machines[number].phase == Phase.UNJUDGED:
            machines[number] = machines[number]._replace(phase=Phase.OFF, fresh=False)
            label = ("killed-before-the-store", NAMES[number])
            self.go(label, fair=False, machines=tuple(machines))

    def renewal(self, number: int, after: Machine) -> None:
        """Claimed again before the next writing call."""
        one, claim = self.state.machines[number], self.state.claim
        if claim.number > one.disk.pending.number or self.is_foreign(one):
            red = self.machine(number, phase=Phase.RED, task=None)
            self.go(("claim-red", NAMES[number]), machines=red)
        else:
            self.write_claim(number, after)

    # ---- what needs no store
    def works(self, number: int) -> None:
        one, name, setup = self.state.machines[number], NAMES[number], self.setup
        working = one.phase == Phase.GREEN
        early = one.phase == Phase.UNJUDGED
        disk = one.disk
        finished = {self.state.offsets[i] for i, what in disk.segments if what == FINISHED}
        at = disk.local_start
        if (working or (early and not setup.expiry_waits)) and at in finished:
            after = disk._replace(local_start=at + 1)
            self.go(("expire", name, at), fair=False, machines=self.machine(number, disk=after))
        if not working and not (early and not setup.work_waits):
            return
        if one.raises and disk.log_start < at:
            after = disk._replace(log_start=disk.log_start + 1)
            raised = self.machine(number, disk=after, raises=one.raises - 1)
            self.go(("raise-log-start", name), fair=False, machines=raised)
        if one.task is None:
            self.announces(number, finished)

    def announces(self, number: int, finished: set[int]) -> None:
        """STARTED of a new id, DELETE_STARTED of what is to go, each in the machine's own topic."""
        one, name, state = self.state.machines[number], NAMES[number], self.state
        disk = one.disk
        if self.setup.claims and self.setup.renewed == "before" and not one.fresh:
            if one.phase == Phase.GREEN:
                self.renewal(number, one._replace(fresh=True))
            return
        known = {state.offsets[i] for i, _ in disk.segments}
        first = next(
            (o for o in range(disk.local_start, self.setup.offsets) if o not in known), None
        )
        if first is not None and len(state.offsets) < self.setup.ids:
            new = len(state.offsets)
            changed = one._replace(disk=with_state(disk, new, STARTED), task=("put", new))
            self.announce(number, changed, ("STARTED", name, new), (*state.offsets, first))
        for i, what in disk.segments:
            below = what == FINISHED and state.offsets[i] < disk.log_start
            if below or what in (STARTED, DELETE_STARTED):
                changed = one._replace(disk=with_state(disk, i, DELETE_STARTED), task=("delete", i))
                self.announce(number, changed, ("DELETE_STARTED", name, i), state.offsets)

    def announce(self, number: int, after: Machine, label: Label, offsets: tuple[int, ...]) -> None:
        assert after.task is not None
        kind, i = after.task
        if self.setup.claims and self.setup.renewed == "after":
            kind = f"claim-{kind}"
        machines = list(self.state.machines)
        machines[number] = after._replace(task=(kind, i), fresh=False)
        self.go(label, fair=False, machines=tuple(machines), offsets=offsets)

    # ---- plugin calls that write
    def writes(self, number: int) -> None:
        one, name = self.state.machines[number], NAMES[number]
        if one.task is None or one.phase in (Phase.OFF, Phase.ABSENT, Phase.RED):
            return
        kind, i = one.task
        if kind.startswith("claim-"):
            if one.phase == Phase.GREEN:
                self.renewal(number, one._replace(task=(kind.removeprefix("claim-"), i)))
            return
        renews = self.setup.claims and self.setup.renewed != "start"
        if renews and self.setup.at_once and self.state.claim.owner != number:
            red = self.machine(number, phase=Phase.RED, task=None)
            self.go(("claim-red", name), machines=red)
            return
        bit, announced = 1 << i, STARTED if kind == "put" else DELETE_STARTED
        disk = with_state(one.disk, i, FINISHED if kind == "put" else None)
        objects = self.state.objects | bit if kind == "put" else self.state.objects & ~bit
        self.go(
            (kind, name, i),
            machines=self.machine(number, disk=disk, task=None),
            objects=objects,
            **self.seen(number, i, announced),
        )

    def seen(self, number: int, i: int, announced: str) -> dict[str, Any]:
        """Two histories must not both write: the copy's, and what the original did since."""
        state = self.state
        if number == 1:
            if state.unannounced:
                return {"alarm": "a copy writes, and knows not what the original has written"}
            return {"q_wrote": True}
        if state.q_wrote:
            return {"alarm": "the original writes on after its copy has written"}
        if state.copied is not None and dict(state.copied.segments).get(i) != announced:
            return {"unannounced": True}
        return {}
