"""A simulated quorum of the product's replicas: machines, network, clocks, clients and faults.

world = QuorumWorld(plan_of(7))
world.start(); world.run(5000); world.calm_down()

Time is that of a heap of what is to happen; nothing waits. The same plan gives the same run, whose
`trace_hash` is the same on every Python.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from metadata_topic.raft.effects import Effect
from metadata_topic.raft.events import Event
from metadata_topic.raft.voters import ReplicaKey
from tests.support.quorum_world.addresses import Addresses
from tests.support.quorum_world.brief import brief
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.faults import QuorumFaults
from tests.support.quorum_world.liveness import Liveness
from tests.support.quorum_world.net import QuorumNet
from tests.support.quorum_world.node import NodeProcess, QuorumNode
from tests.support.quorum_world.oracle import QuorumOracle
from tests.support.quorum_world.plan import QuorumPlan
from tests.support.quorum_world.voter_faults import VoterFaults
from tests.support.quorum_world.voter_operator import VoterOperator
from tests.support.quorum_world.workload import Workload
from tests.support.sim.memory_disk import ProcessEnded
from tests.support.sim.pool_work import in_pieces
from tests.support.sim.timeline import Timeline

LEADER_WITHIN_MS = 60_000
EQUAL_WITHIN_MS = 60_000
CLOSED_WITHIN_MS = 60_000
CALM_US = (300, 500)
TOUCH_US = 2
LATE_TOUCHES = 0.03


@dataclass(frozen=True, slots=True)
class Calm:
    """What came after the last fault.

    Attributes:
        leader_ms: until there was a leader that all that it knew of was committed to.
        equal_ms: until all nodes had the same log, all of it committed.
    """

    leader_ms: int
    equal_ms: int


class RandomRng:
    """`random.Random` as an rng."""

    def __init__(self, text: str) -> None:
        self._random = Random(text)
        self.random = self._random.random

    def uuid(self) -> bytes:
        """16 bytes."""
        return self._random.randbytes(16)


class QuorumWorld:
    """See the module.

    Attributes:
        steps: of all cores.
        lost_us: when a disk was lost, by the key of the replica that had it.
        trace: what happened last, in words, if asked for.
        broken: the first rule that was broken within a node's own code.
    """

    def __init__(self, plan: QuorumPlan, *, trace_lines: int = 0) -> None:
        self.plan = plan
        self.timeline = Timeline()
        self.steps = 0
        self.trace_hash = 0
        self.trace: deque[str] | None = deque(maxlen=trace_lines) if trace_lines else None
        self.is_disturbed = plan.disturbed
        self.broken: Violation | None = None
        self.delay_us, self._disk_us, self._pool_us = plan.delay_us, plan.disk_us, plan.pool_us
        self.net_rng = Random(f"quorum-net-{plan.seed}")
        self.disk_rng = Random(f"quorum-disk-{plan.seed}")
        self.work_rng = Random(f"quorum-work-{plan.seed}")
        self.cut_rng = RandomRng(f"quorum-cut-{plan.seed}")
        self.nodes: dict[int, QuorumNode] = {}
        self.lost_us: dict[ReplicaKey, int] = {}
        self.oracle = QuorumOracle(self)
        for node_id in plan.nodes:
            self.nodes[node_id] = self._node(node_id)
        self.addresses = Addresses(self)
        self.net = QuorumNet(self)
        self.workload = self._workload()
        self.operator = VoterOperator(self)
        self.faults = self._faults()
        self.liveness = Liveness(self)

    def _node(self, node_id: int) -> QuorumNode:
        return QuorumNode(self, node_id)

    def _workload(self) -> Workload:
        return Workload(self)

    def _faults(self) -> QuorumFaults:
        return VoterFaults(self) if self.plan.change_every_ms else QuorumFaults(self)

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

    def turn(self) -> None:
        """Let the next thing happen, and validate it."""
        timeline = self.timeline
        try:
            if not timeline.turn():
                return
        except ProcessEnded:
            self._ended(self._node_of(timeline.whom))
        except Violation:
            raise
        except Exception as error:
            what = f"{self._node_of(timeline.whom)}: {type(error).__name__}: {error}"
            raise Violation("no error escapes to the event loop", what) from error
        node = self._node_of(timeline.whom)
        if node is not None:
            self.oracle.after_turn(node)
        else:
            for one in self.nodes.values():
                self.oracle.after_turn(one)
        if node is not None:
            self.workload.validate(node)
        if self.is_disturbed:
            self.liveness.look()
        if self.broken is not None:
            raise self.broken

    def run(self, steps: int) -> None:
        """Continue until the cores have made so many steps in all."""
        while self.steps < steps and self.timeline.next_us is not None:
            self.turn()

    def run_for(self, ms: int) -> None:
        """Continue for a time."""
        until = self.now_us + ms * 1000
        while (next_us := self.timeline.next_us) is not None and next_us <= until:
            self.turn()
        self.timeline.now_us = max(until, self.now_us)

    def run_until(self, holds: Callable[[], bool], within_ms: int = 60_000) -> bool:
        """Continue until something holds; whether it does."""
        until = self.now_us + within_ms * 1000
        while not holds():
            steps = self.steps
            while self.steps == steps:
                next_us = self.timeline.next_us
                if next_us is None or next_us > until:
                    return False
                self.turn()
        return True

    def breaks(self, rule: str, what: str) -> None:
        """A rule is broken within a node's own code, which would catch an exception."""
        self.breaks_by(Violation(rule, what))

    def breaks_by(self, error: Violation) -> None:
        """The same; the first one counts."""
        self.broken = self.broken or error

    def _node_of(self, whom: Any) -> QuorumNode | None:
        return whom.node if isinstance(whom, NodeProcess) else whom

    def _ended(self, node: QuorumNode | None) -> None:
        if node is None:
            [node] = [
                one for one in self.nodes.values() if one.process and one.process.disk.is_over
            ]
        if node.up:
            self.tell(f"{node} ends within what it did, power={node.power_goes}")
            node.crash(power=node.power_goes)
            self.start_later(node, node.down_ms)

    def disk_us(self) -> int:
        """How long an fsync, or another operation of a disk, takes."""
        return self._drawn(self._disk_us)

    def _drawn(self, least_and_mean: tuple[int, int]) -> int:
        least, mean = least_and_mean
        return least + int(self.disk_rng.random() * 2 * mean) if mean else least

    def touch_us(self) -> int:
        """How long an operation of a disk takes that is no fsync: now and then as long as one."""
        return self.disk_us() if self.disk_rng.random() < LATE_TOUCHES else TOUCH_US

    def pool_us(self) -> int:
        """How long it takes until a pool begins."""
        return self._drawn(self._pool_us)

    # A whole run

    def start(self) -> None:
        """Start all nodes, the workload and the faults."""
        for node in self.nodes.values():
            late_us = int(self.work_rng.random() * 300_000) if self.plan.disturbed else 0
            self.start_later(node, late_us // 1000)
        self.workload.start()
        if self.plan.change_every_ms:
            self.operator.start()
        if self.plan.disturbed:
            self.faults.next()

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
        self.workload.stop()
        self.operator.stop()
        self.become_equal()
        if self.plan.change_every_ms:
            self._commit_one_more()
        equal_ms = (self.now_us - began) // 1000
        waiting = [(node, node.life, {**node.pending}) for node in self.nodes.values()]
        self.run_for(2 * self.plan.patience_ms + 5_000)  # whoever waits is answered by then
        for node, life, pending in waiting:
            late = [node.pending[one] for one in pending if one in node.pending]
            if life == node.life and late:
                raise Violation("every request is answered", f"{node}: {late[0][1]}")
        self.become_equal()
        self.workload.validate_end()
        self.operator.validate_end()
        return Calm(leader_ms, equal_ms)

    def end(self) -> None:
        """End what still runs; nothing is validated any more."""
        for node in self.nodes.values():
            if node.process is not None:
                node.process.end()

    def become_equal(self) -> None:
        """Continue until all logs are equal."""
        if not self.run_until(self.all_equal, EQUAL_WITHIN_MS):
            raise Violation("calm makes all logs equal", f"{self.states}")

    def _commit_one_more(self) -> None:
        """Whoever votes by now, they continue committing: a controller writes for itself, too."""
        oracle = self.oracle
        before = oracle.high_watermark
        if not self.run_until(lambda: oracle.high_watermark > before, EQUAL_WITHIN_MS):
            raise Violation("calm lets a record be committed", f"{self.states}")

    def heal(self) -> None:
        """End what disturbs: cuts, losses, pauses, slow disks, nodes that are down."""
        self.is_disturbed = False
        self.net.loss = self.net.duplication = 0.0
        self.net.cuts.clear()
        self.delay_us = self._disk_us = CALM_US
        self._pool_us = (20, 0)
        for node in self.nodes.values():
            node.paused_until = min(node.paused_until, self.now_us)
            node.log_is_slow_until = node.state_is_slow_until = 0
            node.crash_after = None
            self._heal_node(node)

    def _heal_node(self, node: QuorumNode) -> None:
        """Repair its disk, and start it."""
        node.disk_fault = node.start_ends_after = None
        if node.process is not None:
            node.process.disk.end_after(None)
        if node.up and node.has_old_settings:
            node.crash()
        self.addresses.give_back(node)
        if not node.up:
            self.start_later(node, 0)

    @property
    def leader(self) -> QuorumNode | None:
        """The leader of the highest epoch, once it has committed something in it."""
        led = [node for node in self.nodes.values() if node.leads]
        newest = max(led, key=lambda node: int(node.core.epoch), default=None)
        if newest is None or newest.core.high_watermark <= newest.core.epoch_start_offset:
            return None
        return newest

    def all_equal(self) -> bool:
        """Whether all nodes are in the leader's epoch and have applied its log, all committed."""
        leader = self.leader
        if leader is None or leader.core.high_watermark != leader.core.log.end_offset:
            return False
        end = leader.core.log.end_offset
        for node in self.nodes.values():
            if not self.runs(node) or node.core.epoch != leader.core.epoch:
                return False
            if (node.core.log.end_offset, node.core.high_watermark) != (end, end):
                return False
            if node.replica is None or node.replica.applied_end != end:
                return False
        return True

    def runs(self, node: QuorumNode) -> bool:
        """Whether a node is up and has come past its start."""
        return node.up and node.replica is not None

    @property
    def states(self) -> str:
        """All nodes in a line."""
        return "; ".join(self.state_of(node) for node in self.nodes.values())

    def state_of(self, node: QuorumNode) -> str:
        """A node in a few words."""
        if not self.runs(node):
            return f"{node} down"
        core = node.core
        assert node.replica is not None
        return (
            f"{node} {core.role.value} {core.epoch} leader {core.leader_id} "
            f"log {node.disk.start_offset}-{node.disk.end_offset} hw {core.high_watermark} "
            f"applied {node.replica.applied_end}"
        )

    @property
    def longest_ms(self) -> Mapping[str, int]:
        """Without a leader, and without following it."""
        return self.liveness.longest_ms

    # What is done to nodes

    def crash_for(self, node: QuorumNode, ms: int, *, power: bool = False) -> None:
        """Crash a node, or let its machine lose power, and start it again later."""
        if node.up:
            self.tell(f"{node} {'loses power' if power else 'crashes'}")
            node.crash(power=power)
        self.start_later(node, ms)

    def start_later(self, node: QuorumNode, ms: int) -> None:
        """Start a node unless it runs by then."""
        self.at_any_life(self.now_us + ms * 1000, node, self._start, node)

    def _start(self, node: QuorumNode) -> None:
        if not node.up:
            self.tell(f"{node} starts")
            node.start()

    def expect_closed(self, node: QuorumNode) -> None:
        """Raise if a node that was told to close is still there after a time."""

        def look() -> None:
            if node.paused_until > self.now_us - CLOSED_WITHIN_MS * 1000:
                self.at_node(self.now_us + CLOSED_WITHIN_MS * 1000, node, look)
            elif node.up:
                raise Violation("a node that closes ends", f"{self.state_of(node)}")

        self.at_node(self.now_us + CLOSED_WITHIN_MS * 1000, node, look)

    def lose_disk(self, node: QuorumNode) -> None:
        """Give a node that is down an empty disk with another directory id."""
        assert not node.up
        is_another = self.plan.dynamic or node.id not in self.plan.voters  # else it is one still
        if is_another:
            self.oracle.lost_disks[node.key] = node.disk
            self.lost_us[node.key] = self.now_us
        else:
            self.oracle.error_causes.add("two nodes are voter")
        self.oracle.forgets(node, is_another=is_another)
        node.disk_number += 1
        node.copy = None
        node.new_machine()

    # What is remembered of it

    def note(self, node: QuorumNode, event: Event, effects: list[Effect]) -> None:
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


@contextmanager
def simulated() -> Iterator[None]:
    """Let pools work, and the product's loggers say nothing: its faults are expected here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with in_pieces():
            yield
    finally:
        logging.disable(before)
