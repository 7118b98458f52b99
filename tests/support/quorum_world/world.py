"""A simulated quorum of the product's replicas: machines, network, clocks, clients and faults.

world = QuorumWorld(plan_of(7))
world.start(); world.run(5000); world.calm_down()
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

from metadata_topic.raft.effects import RoleChanged
from tests.support.quorum_world.addresses import Addresses
from tests.support.quorum_world.faults import QuorumFaults
from tests.support.quorum_world.liveness import Liveness
from tests.support.quorum_world.net import QuorumNet
from tests.support.quorum_world.node import NodeProcess, QuorumNode
from tests.support.quorum_world.oracle import QuorumOracle
from tests.support.quorum_world.plan import QuorumPlan
from tests.support.quorum_world.workload import Workload
from tests.support.raft.base_world import BaseWorld
from tests.support.raft.errors import Violation
from tests.support.sim.memory_disk import ProcessEnded
from tests.support.sim.pool_work import in_pieces

CLOSED_WITHIN_MS = 60_000
TOUCH_US = 2
LATE_TOUCHES = 0.03


class RandomDice:
    """`random.Random` as dice."""

    def __init__(self, text: str) -> None:
        self._random = Random(text)
        self.random = self._random.random

    def uuid(self) -> bytes:
        """16 bytes."""
        return self._random.randbytes(16)


class QuorumWorld(BaseWorld[QuorumNode]):
    """See the module.

    Attributes:
        broken: the first rule that was broken within a node's own code.
    """

    closed_within_ms = CLOSED_WITHIN_MS

    def __init__(self, plan: QuorumPlan, *, trace_lines: int = 0) -> None:
        super().__init__(plan, dice="quorum", trace_lines=trace_lines)
        self.broken: Violation | None = None
        self._pool_us = plan.pool_us
        self.cut_dice = RandomDice(f"quorum-cut-{plan.seed}")
        self.oracle = QuorumOracle(self)
        for node_id in plan.nodes:
            self.nodes[node_id] = QuorumNode(self, node_id)
        self.addresses = Addresses(self)
        self.net = QuorumNet(self)  # type: ignore[arg-type]
        self.workload = Workload(self)
        self.faults = QuorumFaults(self)  # type: ignore[arg-type]
        self.liveness = Liveness(self)

    # Turns

    def turn(self) -> None:
        """Let the next thing happen, and judge it."""
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
            self.workload.judge(node)
        if self.is_disturbed:
            self.liveness.look()
        if self.broken is not None:
            raise self.broken

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

    @property
    def longest_ms(self) -> Mapping[str, int]:
        """Without a leader, and without following it."""
        return self.liveness.longest_ms

    def touch_us(self) -> int:
        """How long an operation of a disk takes that is no fsync: now and then as long as one."""
        return self.disk_us() if self.disk_dice.random() < LATE_TOUCHES else TOUCH_US

    def pool_us(self) -> int:
        """How long it takes until a pool begins."""
        return self._drawn(self._pool_us)

    # A whole run

    def start_work(self) -> None:
        """Let clients and brokers begin."""
        self.workload.start()

    def when_led(self) -> None:
        """Ask for nothing more."""
        self.workload.stop()

    def when_equal(self) -> None:
        """Whoever waits is answered by then, and all stays equal."""
        self.run_for(2 * self.plan.patience_ms + 5_000)
        self.become_equal()
        self.workload.judge_end()

    def heal(self) -> None:
        """End what disturbs."""
        self._pool_us = (20, 0)
        super().heal()

    def heal_node(self, node: QuorumNode) -> None:
        """Mend its disk, and start it."""
        node.disk_fault = node.start_ends_after = None
        if node.process is not None:
            node.process.disk.end_after(None)
        if node.up and node.has_old_settings:
            node.crash()
        self.addresses.give_back(node)
        if not node.up:
            self.start_later(node, 0)

    def all_equal(self) -> bool:
        """All have the same log, all of it committed, and have applied it."""
        if not super().all_equal():
            return False
        replicas = [node.replica for node in self.nodes.values() if node.replica is not None]
        leader = self.leader
        assert leader is not None
        return all(one.applied_end == leader.core.log.end_offset for one in replicas)

    def runs(self, node: QuorumNode) -> bool:
        """Whether a node is up and has come past its start."""
        return node.up and node.replica is not None

    def state_of(self, node: QuorumNode) -> str:
        """A node in a few words."""
        applied = "" if node.replica is None else f" applied {node.replica.applied_end}"
        return super().state_of(node) + applied

    # What is done to nodes

    def crash_for(self, node: QuorumNode, ms: int, *, power: bool = False) -> None:
        """Crash a node, or let its machine lose power, and start it again later."""
        if node.up and power:
            self.tell(f"{node} loses power")
            node.crash(power=True)
        super().crash_for(node, ms)

    def start_at(self, at_us: int, node: QuorumNode, fn: Callable[..., object], *args: Any) -> None:
        """Let something happen to a node that is down; later if it is paused."""
        self.at_any_life(at_us, node, fn, *args)

    def lose_disk(self, node: QuorumNode) -> None:
        """Give a node that is down an empty disk with another directory id."""
        assert not node.up
        if self.plan.dynamic or node.id not in self.plan.voters:  # else it is one still
            self.oracle.lost_disks[node.key] = node.disk  # type: ignore[assignment]
        else:
            self.oracle.error_causes.add("two nodes are voter")
        self.oracle.forgets(node)  # type: ignore[arg-type]
        node.disk_number += 1
        node.copy = None
        node.new_machine()

    def tell_role(self, node: Any, changed: RoleChanged) -> None:
        """Changes of role are in the trace as effects."""


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
