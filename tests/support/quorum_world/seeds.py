"""Runs of the simulated quorum by seed: what came of them, and a failure made small."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from multiprocessing import get_context
from typing import Any

from tests.support.nodes_world.plan import nodes_plan_of
from tests.support.nodes_world.world import NodesWorld
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.plan import QuorumPlan, quorum_plan_of
from tests.support.quorum_world.world import Calm, QuorumWorld, simulated
from tests.support.replication_world.plan import replication_plan_of
from tests.support.replication_world.world import ReplicationWorld

PLANS: Mapping[str, Callable[[int], QuorumPlan]] = {
    "quorum": quorum_plan_of,
    "nodes": nodes_plan_of,
    "replication": replication_plan_of,
}
"""The plan of a seed, by the name of its world."""
WORLDS: Mapping[str, Any] = {
    "quorum": QuorumWorld,
    "nodes": NodesWorld,
    "replication": ReplicationWorld,
}
SHRINK_SECONDS = 40.0
SIMPLER: tuple[dict[str, Any], ...] = (
    {"observers": (), "outsiders": ()},
    {"loss": 0.0, "duplication": 0.0},
    {"clock_skew": 0.0},
    {"delay_us": (500, 0), "disk_us": (500, 0)},
    {"brokers": 0},
    {"clients": 1},
    {"names": 1},
    {"snapshot_bytes": 1 << 20},
    {"segment_bytes": 1 << 20, "retention_bytes": 1 << 20},
    {"wire": False, "pool_us": (20, 0)},
    {"linger_ms": 0},
    {"groups": 0},
    {"consumers": 0},
    {"delete_every_ms": 0},
    {"log_segment_bytes": 1 << 20, "fetch_partition_bytes": 1 << 20},
    {"producers": 1},
)
"""Changes of a plan that leave out what disturbs, the best first."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        events: steps of all cores, those after the last fault among them.
        faults: how many there were.
        voter_faults: those of voters, beyond ends of processes.
        changes: of voters, that were committed.
        longest_ms: what took longest while nothing disturbed it, by what was waited for.
        calm: what came after them; None if it did not come to that.
        violation: what was broken; None if all held.
    """

    plan: QuorumPlan
    events: int
    elections: int
    committed: int
    faults: int
    trace_hash: int
    calm: Calm | None
    violation: Violation | None
    voter_faults: int = 0
    changes: int = 0
    longest_ms: Mapping[str, int] = field(default_factory=dict)
    trace: tuple[str, ...] = ()


def world_of(plan: QuorumPlan, *, trace_lines: int = 0) -> QuorumWorld:
    """A quorum, a cluster of brokers and controllers, or one with replicas."""
    made: QuorumWorld = WORLDS[plan.world](plan, trace_lines=trace_lines)
    return made


def run_plan(plan: QuorumPlan, events: int, *, trace_lines: int = 0) -> Outcome:
    """Run a plan for so many steps, then until all is calm."""
    calm, violation = None, None
    with simulated():
        world = world_of(plan, trace_lines=trace_lines)
        try:
            world.start()
            world.run(events)
            calm = world.calm_down()
        except Violation as error:
            violation = error
        finally:
            world.end()
    return Outcome(
        plan,
        world.steps,
        world.oracle.elections,
        world.oracle.high_watermark,
        world.faults.count,
        world.trace_hash,
        calm,
        violation,
        world.faults.voter_faults.total(),
        max(len(world.oracle.voters.committed) - 2, 0),  # but for the first leader's own
        world.longest_ms,
        tuple(world.trace or ()),
    )


@dataclass
class Summary:
    """Many runs together."""

    seeds: int = 0
    events: int = 0
    elections: int = 0
    committed: int = 0
    violations: int = 0
    with_voter_faults: int = 0
    changes: int = 0
    seconds: float = 0.0
    longest_ms: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._leader_ms: list[int] = []

    def take(self, outcome: Outcome) -> None:
        """Count a run."""
        self.seeds += 1
        self.events += outcome.events
        self.elections += outcome.elections
        self.committed += outcome.committed
        self.violations += outcome.violation is not None
        self.with_voter_faults += outcome.voter_faults > 0
        self.changes += outcome.changes
        for what, ms in outcome.longest_ms.items():
            self.longest_ms[what] = max(ms, self.longest_ms.get(what, 0))
        if outcome.calm is not None:
            self._leader_ms.append(outcome.calm.leader_ms)

    def leader_ms(self, part: float) -> int:
        """How long it took without faults until there was a leader, in so large a part of runs."""
        ordered = sorted(self._leader_ms)
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else -1

    def __str__(self) -> str:
        rate = self.events / self.seconds if self.seconds else 0.0
        waits = "/".join(str(self.leader_ms(part)) for part in (0.5, 0.9, 0.99, 1.0))
        longest = "".join(f" {what}_ms_max={ms}" for what, ms in self.longest_ms.items())
        longest += f" voter_changes={self.changes}" if self.changes else ""
        return (
            f"seeds={self.seeds} events={self.events} elections={self.elections} "
            f"committed={self.committed} steps_per_second={rate:.0f} "
            f"violations={self.violations} with_voter_faults={self.with_voter_faults} "
            f"leader_after_ms_p50/p90/p99/max={waits}{longest}"
        )


def run_seeds(
    seeds: Iterable[int],
    events: int,
    plan_of: Callable[[int], QuorumPlan],
    *,
    until_s: float | None = None,
    seeds_min: int = 0,
    processes: int = 1,
) -> Iterator[tuple[Summary, Outcome]]:
    """Run seeds in their order.

    Ends after the first violation, or when time is over and `seeds_min` were run.
    """
    summary = Summary()
    began = time.monotonic()
    plans = (plan_of(seed) for seed in seeds)
    with closing(_outcomes(plans, events, processes)) as outcomes:
        for outcome in outcomes:
            summary.take(outcome)
            summary.seconds = time.monotonic() - began
            yield summary, outcome
            if outcome.violation is not None:
                return
            is_late = until_s is not None and time.monotonic() > until_s
            if is_late and summary.seeds >= seeds_min:
                return


def _outcomes(
    plans: Iterator[QuorumPlan], events: int, processes: int
) -> Generator[Outcome, None, None]:
    """What comes of each plan, in their order; with several processes some plans at once."""
    if processes < 2:
        for plan in plans:
            yield run_plan(plan, events)
        return
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        ahead = islice(plans, 2 * processes)
        running = deque(pool.submit(run_plan, plan, events) for plan in ahead)
        while running:
            yield running.popleft().result()
            running.extend(pool.submit(run_plan, plan, events) for plan in islice(plans, 1))


def shrink(failed: Outcome, events: int) -> tuple[Outcome, int]:
    """Find a simpler plan that breaks the same rule: fewer disturbances, then fewer faults.

    Returns:
        What came of it, and for how many events it must run.
    """
    assert failed.violation is not None
    rule = failed.violation.rule
    best, best_events = failed, min(events, failed.events)
    ends = time.monotonic() + SHRINK_SECONDS

    def attempt(plan: QuorumPlan, limit: int) -> bool:
        nonlocal best, best_events
        if plan == best.plan or time.monotonic() > ends:
            return False
        outcome = run_plan(plan, limit)
        if outcome.violation is None or outcome.violation.rule != rule:
            return False
        best, best_events = outcome, min(limit, outcome.events)
        return True

    for change in SIMPLER:
        if all(hasattr(best.plan, name) for name in change):
            attempt(replace(best.plan, **change), best_events)
    _drop_faults(lambda: best, lambda plan: attempt(plan, best_events), ends)
    return best, best_events


def _drop_faults(
    best: Callable[[], Outcome], attempt: Callable[[QuorumPlan], bool], ends: float
) -> None:
    """Leave out halves of the faults, then quarters, and so on down to single ones."""
    size = max(best().faults // 2, 1)
    while time.monotonic() < ends:
        first = 0
        while first < best().faults and time.monotonic() < ends:
            more = tuple(range(first, first + size))
            plan = best().plan
            attempt(replace(plan, without=tuple(sorted({*plan.without, *more}))))
            first += size
        if size == 1:
            return
        size //= 2


def replay_line(outcome: Outcome, events: int, original: QuorumPlan) -> str:
    """The command that runs it again."""
    seed = outcome.plan.seed
    words = [f"python -m tests.simulation.run --seeds {seed} --events {events}"]
    if original.world != "quorum":
        words.append(f"--world {original.world}")
    for one in fields(original):
        value = getattr(outcome.plan, one.name)
        if one.name == "without":
            if value:
                words.append(f"--without {ranges(value)}")
        elif value != getattr(original, one.name):
            words.append(f"--set {one.name}={value!r}".replace(" ", ""))
    return " ".join(words).replace("--set", "--set ").replace("  ", " ")


def ranges(numbers: tuple[int, ...]) -> str:
    """Rising numbers as 1-3,5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def numbers_of(text: str) -> tuple[int, ...]:
    """What `ranges` wrote."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)
