"""What simulated quorums have in common: time, lives, a whole run, and what is remembered of it.

`world.World` has models of nodes around the core, `quorum_world.world.QuorumWorld` the product's.
Time is that of a heap of what is to happen; nothing waits. The same plan gives the same run, whose
`trace_hash` is the same on every Python.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Protocol, TypeVar
from zlib import crc32

from metadata_topic.raft.effects import Effect
from metadata_topic.raft.events import Event
from tests.support.raft.brief import brief
from tests.support.raft.errors import Violation
from tests.support.raft.plan import Plan
from tests.support.sim.timeline import Timeline

LEADER_WITHIN_MS = 60_000
EQUAL_WITHIN_MS = 60_000
CALM_US = (300, 500)


class AnyNode(Protocol):
    """A node of a simulated quorum, as far as any world knows it."""

    id: int
    life: int
    paused_until: int
    up: bool
    disk_number: int
    crash_after: int | None
    log_is_slow_until: int
    state_is_slow_until: int

    @property
    def core(self) -> Any: ...

    @property
    def disk(self) -> Any: ...

    @property
    def leads(self) -> bool: ...

    def start(self) -> None: ...

    def crash(self) -> None: ...


N = TypeVar("N", bound=AnyNode)


@dataclass(frozen=True, slots=True)
class Calm:
    """What came after the last fault.

    Attributes:
        leader_ms: until there was a leader that all that it knew of was committed to.
        equal_ms: until all nodes had the same log, all of it committed.
    """

    leader_ms: int
    equal_ms: int


class BaseWorld(ABC, Generic[N]):
    """See the module.

    Attributes:
        steps: of all cores.
        trace: what happened last, in words, if asked for.
        closed_within_ms: a node that is told to close is gone by then.
    """

    closed_within_ms: int
    oracle: Any
    net: Any
    faults: Any

    def __init__(self, plan: Plan, *, dice: str, trace_lines: int) -> None:
        self.plan: Any = plan
        self.timeline = Timeline()
        self.steps = 0
        self.trace_hash = 0
        self.trace: deque[str] | None = deque(maxlen=trace_lines) if trace_lines else None
        self.is_disturbed = plan.disturbed
        self.delay_us, self._disk_us = plan.delay_us, plan.disk_us
        self.net_dice = Random(f"{dice}-net-{plan.seed}")
        self.disk_dice = Random(f"{dice}-disk-{plan.seed}")
        self.work_dice = Random(f"{dice}-work-{plan.seed}")
        self.nodes: dict[int, N] = {}

    # Time

    @property
    def now_us(self) -> int:
        """The world's time."""
        return self.timeline.now_us

    def at(self, at_us: int, fn: Callable[..., object], *args: Any) -> None:
        """Let something happen that belongs to no node."""
        self.timeline.at(at_us, fn, *args)

    def at_node(self, at_us: int, node: Any, fn: Callable[..., object], *args: Any) -> None:
        """Let something happen in this life of a node; later if it is paused then."""
        self.timeline.at_process(at_us, node, fn, *args)

    def at_any_life(self, at_us: int, node: Any, fn: Callable[..., object], *args: Any) -> None:
        """The same in whatever life the node then is, down or up."""
        self.timeline.at_any_life(at_us, node, fn, *args)

    @property
    def longest_ms(self) -> Mapping[str, int]:
        """What took longest while nothing disturbed it, where that is judged."""
        return {}

    @abstractmethod
    def turn(self) -> None:
        """Let the next thing happen."""

    def run(self, steps: int) -> None:
        """Go on until the cores have made so many steps in all."""
        while self.steps < steps and self.timeline.next_us is not None:
            self.turn()

    def run_for(self, ms: int) -> None:
        """Go on for a time."""
        until = self.now_us + ms * 1000
        while (next_us := self.timeline.next_us) is not None and next_us <= until:
            self.turn()
        self.timeline.now_us = max(until, self.now_us)

    def run_until(self, holds: Callable[[], bool], within_ms: int = 60_000) -> bool:
        """Go on until something holds; whether it does."""
        until = self.now_us + within_ms * 1000
        while not holds():
            steps = self.steps
            while self.steps == steps:
                next_us = self.timeline.next_us
                if next_us is None or next_us > until:
                    return False
                self.turn()
        return True

    def disk_us(self) -> int:
        """How long an fsync, or another operation of a disk, takes."""
        return self._drawn(self._disk_us)

    def _drawn(self, least_and_mean: tuple[int, int]) -> int:
        least, mean = least_and_mean
        return least + int(self.disk_dice.random() * 2 * mean) if mean else least

    # A whole run

    def start(self) -> None:
        """Start all nodes, the workload and the faults."""
        for node in self.nodes.values():
            late_us = int(self.work_dice.random() * 300_000) if self.plan.disturbed else 0
            self.start_later(node, late_us // 1000)
        self.start_work()
        if self.plan.disturbed:
            self.faults.next()

    @abstractmethod
    def start_work(self) -> None:
        """Let those begin who ask for something."""

    def calm_down(self) -> Calm:
        """End all faults: there must be a leader, and all nodes must come to the same log.

        Raises:
            Violation: it is not so in time.
        """
        self.tell("faults end")
        self.heal()
        began = self.now_us
        if not self.run_until(lambda: self.leader is not None, LEADER_WITHIN_MS):
            raise Violation("calm brings a leader", f"not in {LEADER_WITHIN_MS} ms: {self.states}")
        leader_ms = (self.now_us - began) // 1000
        self.when_led()
        self.become_equal()
        equal_ms = (self.now_us - began) // 1000
        self.when_equal()
        return Calm(leader_ms, equal_ms)

    def become_equal(self) -> None:
        """Go on until all logs are equal."""
        if not self.run_until(self.all_equal, EQUAL_WITHIN_MS):
            raise Violation("calm makes all logs equal", f"{self.states}")

    def when_led(self) -> None:
        """There is a leader, and no fault any more."""

    @abstractmethod
    def when_equal(self) -> None:
        """Judge the rest."""

    def heal(self) -> None:
        """End what disturbs: cuts, losses, pauses, slow disks, nodes that are down."""
        self.is_disturbed = False
        self.net.loss = self.net.duplication = 0.0
        self.net.cuts.clear()
        self.delay_us = self._disk_us = CALM_US
        for node in self.nodes.values():
            node.paused_until = min(node.paused_until, self.now_us)
            node.log_is_slow_until = node.state_is_slow_until = 0
            node.crash_after = None
            self.heal_node(node)

    @abstractmethod
    def heal_node(self, node: N) -> None:
        """Let a node run, undisturbed."""

    @property
    def leader(self) -> N | None:
        """The leader of the highest epoch, once it has committed something in it."""
        led = [node for node in self.nodes.values() if node.leads]
        newest = max(led, key=lambda node: int(node.core.epoch), default=None)
        if newest is None or newest.core.high_watermark <= newest.core.epoch_start_offset:
            return None
        return newest

    def all_equal(self) -> bool:
        """Whether all nodes are in the leader's epoch and have its log, all of it committed."""
        leader = self.leader
        if leader is None or leader.core.high_watermark != leader.core.log.end_offset:
            return False
        end = leader.core.log.end_offset
        for node in self.nodes.values():
            if not self.runs(node) or node.core.epoch != leader.core.epoch:
                return False
            if (node.core.log.end_offset, node.core.high_watermark) != (end, end):
                return False
        return True

    def runs(self, node: N) -> bool:
        """Whether a node is up and has a core."""
        return node.up

    @property
    def states(self) -> str:
        """All nodes in a line."""
        return "; ".join(self.state_of(node) for node in self.nodes.values())

    def state_of(self, node: N) -> str:
        """A node in a few words."""
        if not self.runs(node):
            return f"{node} down"
        core = node.core
        return (
            f"{node} {core.role.value} {core.epoch} leader {core.leader_id} "
            f"log {node.disk.start_offset}-{node.disk.end_offset} hw {core.high_watermark}"
        )

    # What is done to nodes

    def crash_for(self, node: N, ms: int) -> None:
        """Crash a node and start it again later."""
        if node.up:
            self.tell(f"{node} crashes")
            node.crash()
        self.start_later(node, ms)

    def start_later(self, node: N, ms: int) -> None:
        """Start a node unless it runs by then."""
        self.start_at(self.now_us + ms * 1000, node, self._start, node)

    @abstractmethod
    def start_at(self, at_us: int, node: N, fn: Callable[..., object], *args: Any) -> None:
        """Let something happen to a node that is down."""

    def _start(self, node: N) -> None:
        if not node.up:
            self.tell(f"{node} starts")
            node.start()

    def expect_closed(self, node: N) -> None:
        """Raise if a node that was told to close is still there after a time."""

        def look() -> None:
            if node.paused_until > self.now_us - self.closed_within_ms * 1000:
                self.at_node(self.now_us + self.closed_within_ms * 1000, node, look)
            elif node.up:
                raise Violation("a node that closes ends", f"{self.state_of(node)}")

        self.at_node(self.now_us + self.closed_within_ms * 1000, node, look)

    # What is remembered of it

    def note(self, node: N, event: Event, effects: list[Effect]) -> None:
        """Count a step and make it part of the trace's hash."""
        self.steps += 1
        core = node.core
        line = (
            f"{self.now_us} {node.id} {type(event).__name__} {core.role.value} {core.epoch} "
            f"{core.log.end_offset} {core.high_watermark} {len(effects)}"
        )
        self.trace_hash = crc32(line.encode(), self.trace_hash)
        if self.trace is not None:
            self.trace.append(f"{self.now_us / 1000:.3f} {self.state_of(node)}: {brief(event)}")
            self.trace.extend(f"      {brief(effect)}" for effect in effects)

    def tell(self, text: str) -> None:
        """Put something into the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now_us / 1000:.3f} {text}")
