"""A simulated quorum: nodes, network, disks, clocks, workload and faults of one plan.

Time is that of a heap of what is to happen; nothing waits. The same plan gives the same run, whose
`trace_hash` is the same on every Python.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any
from zlib import crc32

from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import Effect, RoleChanged
from metadata_topic.raft.events import Event, LogStartRaised, Proposed, SnapshotWritten
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import NOBODY, BatchFacts, Node
from metadata_topic.raft.roles import Role
from metadata_topic.raft.snapshot_id import SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, VoterSet
from tests.support.raft.brief import brief
from tests.support.raft.errors import Violation
from tests.support.raft.faults import Faults
from tests.support.raft.model_disk import (
    PAYLOAD_BYTES,
    ModelDisk,
    StoredSnapshot,
    snapshot_content,
)
from tests.support.raft.oracle import Oracle
from tests.support.raft.plan import Plan, address_of, directory_id
from tests.support.raft.sim_net import SimNet
from tests.support.raft.sim_node import SimNode

CoreFactory = Callable[[ReplicaKey, RaftConfig], Any]
ANY_LIFE = -1
LEADER_WITHIN_MS = 60_000
EQUAL_WITHIN_MS = 60_000
CLOSED_WITHIN_MS = 12_000
"""A generous multiple of the core's own limit: clocks run apart and disks are slow."""
SNAPSHOT_CHUNK_BYTES = 16
BACKLOG_MAX = 200
"""A leader with more uncommitted records gets no further ones."""
CALM_US = (300, 500)


def real_core(key: ReplicaKey, config: RaftConfig) -> Any:
    """Make what is tested."""
    from metadata_topic.raft.core import RaftCore

    return RaftCore(key, config)


@dataclass(frozen=True, slots=True)
class Calm:
    """What came after the last fault.

    Attributes:
        leader_ms: until there was a leader that all that it knew of was committed to.
        equal_ms: until all nodes had the same log, all of it committed.
    """

    leader_ms: int
    equal_ms: int


class World:
    """See the module.

    Attributes:
        now_us: the world's time.
        steps: of all cores.
        damage_chance: of a fetched snapshot.
        slow_read_chance: of records, which are else read at once.
        trace: what happened last, in words, if asked for.
    """

    def __init__(
        self, plan: Plan, *, make_core: CoreFactory = real_core, trace_lines: int = 0
    ) -> None:
        self.plan = plan
        self.make_core = make_core
        self.now_us = 0
        self.steps = 0
        self.trace_hash = 0
        self.trace: deque[str] | None = deque(maxlen=trace_lines) if trace_lines else None
        self.story: list[str] | None = None
        self.reports: list[str] = []
        self.is_disturbed = plan.disturbed
        self.delay_us, self._disk_us = plan.delay_us, plan.disk_us
        self._heap: list[tuple[int, int, SimNode | None, int, Callable[..., None], Any]] = []
        self._order = 0
        self._missed: set[int] = set()
        self._payloads = 0
        self.core_dice = Random(f"raft-core-{plan.seed}")
        self.net_dice = Random(f"raft-net-{plan.seed}")
        self.disk_dice = Random(f"raft-disk-{plan.seed}")
        self._work_dice = Random(f"raft-work-{plan.seed}")
        self.damage_chance = 0.02 if plan.disturbed else 0.0
        self.slow_read_chance = 0.1 if plan.disturbed else 0.0
        self.written_snapshots: dict[bytes, StoredSnapshot] = {}
        self.nodes: dict[int, SimNode] = {}
        self.oracle = Oracle(self)
        self.net = SimNet(self)
        self.by_address: dict[tuple[str, int], SimNode] = {}
        for node_id in plan.nodes:
            self._make_node(node_id)
        self.faults = Faults(self)

    def _make_node(self, node_id: int) -> None:
        plan = self.plan
        bootstrap = tuple(
            Node(NOBODY, node.host, node.port) for node in map(address_of, plan.voters)
        )
        config = RaftConfig(
            can_vote=node_id not in plan.observers,
            bootstrap=bootstrap if plan.dynamic else (),
            static_nodes=() if plan.dynamic else tuple(map(address_of, plan.voters)),
            fetch_max_bytes=plan.fetch_batches * PAYLOAD_BYTES,
            snapshot_max_bytes=SNAPSHOT_CHUNK_BYTES,
            retry_backoff_ms=plan.retry_ms,
        )
        node = SimNode(self, node_id, self._formatted(node_id, 0), config)
        if plan.clock_skew:
            dice = Random(f"raft-clock-{plan.seed}-{node_id}")
            node.clock_offset_ms = dice.randrange(10_000_000)
            node.clock_rate = 1000 + int((2 * dice.random() - 1) * plan.clock_skew * 1000)
        self.nodes[node_id] = node
        address = address_of(node_id)
        self.by_address[address.host, address.port] = node

    def _formatted(self, node_id: int, disk_number: int) -> ModelDisk:
        plan = self.plan
        if not plan.dynamic:
            facts = QuorumFacts(0, plan.voter_set)
        elif node_id in plan.voters and not disk_number:
            facts = QuorumFacts(1, plan.voter_set)
        else:
            facts = QuorumFacts(0, VoterSet(()))
        return ModelDisk(directory_id(node_id, disk_number), facts)

    # Time

    def at(self, at_us: int, carry_out: Callable[..., None], *args: Any) -> None:
        """Let something happen that belongs to no node."""
        self._order += 1
        heappush(self._heap, (at_us, self._order, None, 0, carry_out, args))

    def at_node(
        self, at_us: int, node: SimNode, carry_out: Callable[..., None], *args: Any
    ) -> None:
        """Let something happen in this life of a node; later if it is paused then."""
        self._order += 1
        heappush(self._heap, (at_us, self._order, node, node.life, carry_out, args))

    def at_any_life(
        self, at_us: int, node: SimNode, carry_out: Callable[..., None], *args: Any
    ) -> None:
        """The same in whatever life the node then is, down or up."""
        self._order += 1
        heappush(self._heap, (at_us, self._order, node, ANY_LIFE, carry_out, args))

    def turn(self) -> None:
        """Let the next thing happen."""
        at_us, order, node, life, carry_out, args = heappop(self._heap)
        self._missed.discard(order)
        if at_us > self.now_us:
            self.now_us = at_us
        if node is not None:
            if life not in (ANY_LIFE, node.life):
                return
            if node.paused_until > self.now_us:
                self._order += 1
                heappush(self._heap, (node.paused_until, self._order, node, life, carry_out, args))
                self._missed.add(self._order)
                return
        carry_out(*args)

    def run(self, steps: int) -> None:
        """Go on until the cores have made so many steps in all."""
        while self.steps < steps and self._heap:
            self.turn()

    def run_for(self, ms: int) -> None:
        """Go on for a time."""
        until = self.now_us + ms * 1000
        while self._heap and self._heap[0][0] <= until:
            self.turn()
        self.now_us = until

    def run_until(self, holds: Callable[[], bool], within_ms: int = 60_000) -> bool:
        """Go on until something holds; whether it does."""
        until = self.now_us + within_ms * 1000
        while not holds():
            steps = self.steps
            while self.steps == steps:
                if not self._heap or self._heap[0][0] > until:
                    return False
                self.turn()
        return True

    def disk_us(self) -> int:
        """How long an operation of a disk takes."""
        least, mean = self._disk_us
        return least + int(self.disk_dice.random() * 2 * mean) if mean else least

    # A whole run

    def start(self) -> None:
        """Start all nodes, the workload and the faults."""
        for node in self.nodes.values():
            late_us = int(self._work_dice.random() * 300_000) if self.plan.disturbed else 0
            self.start_later(node, late_us // 1000)
        if self.plan.propose_every_ms:
            self._repeat(self.plan.propose_every_ms, self._propose_somewhere)
        if self.plan.snapshot_every_ms:
            self._repeat(self.plan.snapshot_every_ms, self._snapshot_somewhere)
        if self.plan.disturbed:
            self.faults.next()

    def _repeat(self, mean_ms: int, work: Callable[[], None]) -> None:
        def turn() -> None:
            work()
            wait()

        def wait() -> None:
            self.at(self.now_us + 1 + int(self._work_dice.random() * 2000 * mean_ms), turn)

        wait()

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
        if not self.run_until(self.all_equal, EQUAL_WITHIN_MS):
            raise Violation("calm makes all logs equal", f"{self.states}")
        equal_ms = (self.now_us - began) // 1000
        self._one_more_commit()
        self._nobody_waits()
        return Calm(leader_ms, equal_ms)

    def _one_more_commit(self) -> None:
        before = self.oracle.high_watermark
        leader = self.leader
        if leader is None:
            raise Violation("calm keeps a leader", f"{self.states}")
        self.propose(leader)
        self.run_until(lambda: self.oracle.high_watermark > before and self.all_equal(), 10_000)
        if self.oracle.high_watermark <= before or not self.all_equal():
            raise Violation("what is proposed in calm is committed", f"{self.states}")

    def _nobody_waits(self) -> None:
        waiting = {node.id: dict(node.pending) for node in self.nodes.values()}
        self.run_for(5_000)
        for node in self.nodes.values():
            for token, (_, request) in waiting[node.id].items():
                if token in node.pending:
                    raise Violation("every request is answered", f"{node}: {request}")

    def heal(self) -> None:
        """End what disturbs: cuts, losses, pauses, slow disks, nodes that are down."""
        self.is_disturbed = False
        self.net.loss = self.net.duplication = 0.0
        self.net.cuts.clear()
        self.damage_chance = 0.0
        self.delay_us = self._disk_us = CALM_US
        for node in self.nodes.values():
            node.paused_until = min(node.paused_until, self.now_us)
            node.log_is_slow_until = node.state_is_slow_until = 0
            node.crash_after = None
            if node.up:
                node.disk_time.mend()
            else:
                node.start()
        self._make_up_for_pauses()

    def _make_up_for_pauses(self) -> None:
        """Let what paused nodes missed happen now; it was put off to the ends of their pauses."""
        now_us, missed = self.now_us, self._missed
        self._heap = [(now_us if one[1] in missed else one[0], *one[1:]) for one in self._heap]
        heapify(self._heap)

    @property
    def leader(self) -> SimNode | None:
        """The leader of the highest epoch, once it has committed something in it."""
        led = [node for node in self.nodes.values() if node.leads]
        newest = max(led, key=lambda node: node.core.epoch, default=None)
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
            core = node.core
            if not node.up or core.epoch != leader.core.epoch or core.log.end_offset != end:
                return False
            if core.high_watermark != end:
                return False
        return True

    @property
    def states(self) -> str:
        """All nodes in a line."""
        return "; ".join(self.state_of(node) for node in self.nodes.values())

    def state_of(self, node: SimNode) -> str:
        """A node in a few words."""
        if not node.up:
            return f"{node} down"
        core = node.core
        return (
            f"{node} {core.role.value} {core.epoch} leader {core.leader_id} "
            f"log {node.disk.start_offset}-{node.disk.end_offset} hw {core.high_watermark}"
        )

    # What is done to nodes

    def give(self, node: SimNode, event: Event) -> None:
        """Let a node have an event, when it runs."""
        self.at_node(self.now_us, node, node.step, event)

    def crash_for(self, node: SimNode, ms: int) -> None:
        """Crash a node and start it again later."""
        if node.up:
            self.tell(f"{node} crashes")
            node.crash()
        self.start_later(node, ms)

    def start_later(self, node: SimNode, ms: int) -> None:
        """Start a node unless it runs by then."""

        def start() -> None:
            if not node.up:
                self.tell(f"{node} starts")
                node.start()

        self.at(self.now_us + ms * 1000, start)

    def lose_disk(self, node: SimNode) -> None:
        """Give a node that is down an empty disk with another directory id."""
        assert not node.up
        self.oracle.lost_disks[node.key] = node.disk
        node.disk_number += 1
        node.disk = self._formatted(node.id, node.disk_number)
        node.leader_log_start = 0

    def expect_closed(self, node: SimNode) -> None:
        """Raise if a node that was told to close is still there after a time."""

        def look() -> None:
            if node.paused_until > self.now_us - CLOSED_WITHIN_MS * 1000:
                self.at_node(self.now_us + CLOSED_WITHIN_MS * 1000, node, look)
            elif node.up:
                raise Violation("a node that closes ends", f"{self.state_of(node)}")

        self.at_node(self.now_us + CLOSED_WITHIN_MS * 1000, node, look)

    def propose(self, node: SimNode, sizes: tuple[int, ...] = (1,), *, stale: bool = False) -> bool:
        """Propose batches of these numbers of records; whether they were appended."""
        base = node.disk.end_offset + (1 if stale else 0)
        before = node.disk.end_offset
        batches, data = [], b""
        for size in sizes:
            batches.append(BatchFacts(base, base + size, node.core.epoch))
            base += size
            self._payloads += 1
            data += b"P" + self._payloads.to_bytes(PAYLOAD_BYTES - 1, "big")
        node.refused, led = False, node.leads
        life = node.life
        node.step(Proposed(node.core.epoch, tuple(batches), data))
        if node.life != life:
            return False
        if node.refused == (node.disk.end_offset > before) or (stale and not node.refused):
            raise Violation("a proposal is appended or refused", f"{node} at {base}")
        if not node.refused and not led:
            raise Violation("only a leader appends what is proposed", f"{node} at {base}")
        return not node.refused

    def _propose_somewhere(self) -> None:
        if self.plan.disturbed and not self.is_disturbed:
            return
        random = self._work_dice.random
        nodes = list(self.nodes.values())
        other = nodes[int(random() * len(nodes))] if random() < 0.1 else None
        for node in nodes:
            if not node.up or node.paused_until > self.now_us:
                continue
            if node is not other and node.core.role is not Role.LEADER:
                continue
            if node.disk.end_offset <= self.oracle.high_watermark + BACKLOG_MAX:
                sizes = tuple(1 + int(random() * 3) for _ in range(1 + int(random() ** 3 * 4)))
                self.propose(node, sizes, stale=random() < 0.02)

    def _snapshot_somewhere(self) -> None:
        dice = self._work_dice
        nodes = list(self.nodes.values())
        node = nodes[int(dice.random() * len(nodes))]
        leader = next((one for one in nodes if one.leads), None)
        if leader is not None and dice.random() < 0.4:
            node = leader  # others must load its snapshots then
        which = dice.random()
        size = int(dice.random() * 60)
        if not node.up or node.paused_until > self.now_us or node.installing is not None:
            return
        if which < 0.6:
            self.write_snapshot(node, size)
        else:
            self.raise_log_start(node)

    def write_snapshot(self, node: SimNode, size: int = 30) -> SnapshotId | None:
        """Let a node make a snapshot of all that it knows to be committed."""
        disk, end = node.disk, node.known_high_watermark
        newest = disk.newest
        least = newest.file.id.end_offset if newest else 0
        if not node.up or node.installing is not None or end <= least:
            return None
        snapshot_id = SnapshotId(end, disk.epoch_before(end))
        content = snapshot_content(snapshot_id, node.id, size)
        facts = disk.facts_at(end)
        stored = StoredSnapshot(SnapshotFile(snapshot_id, len(content)), content, facts)
        self.oracle.is_of_committed_state(node, stored)
        disk.flushed_end = max(disk.flushed_end, end)  # only flushed records get into one
        disk.snapshots[snapshot_id] = self.written_snapshots[content] = stored
        node.step(SnapshotWritten(stored.file))
        return snapshot_id

    def raise_log_start(self, node: SimNode) -> bool:
        """Let a node drop its log below a snapshot; a follower as far as the leader did."""
        disk = node.disk
        if not node.up:
            return False
        limit = disk.end_offset if node.leads else node.leader_log_start
        ends = [one.end_offset for one in disk.snapshots if one.end_offset <= limit]
        if not ends or max(ends) <= disk.start_offset or node.installing is not None:
            return False
        disk.raise_start(max(ends))
        left = tuple(disk.snapshots[one].file for one in sorted(disk.snapshots))
        node.step(LogStartRaised(disk.start_offset, left))
        return True

    # What is remembered of it

    def note(self, node: SimNode, event: Event, effects: list[Effect]) -> None:
        """Count a step and make it part of the trace's hash."""
        self.steps += 1
        core = node.core
        name = type(event).__name__
        line = (
            f"{self.now_us} {node.id} {name} {core.role.value} {core.epoch} "
            f"{node.disk.end_offset} {core.high_watermark} {len(effects)}"
        )
        self.trace_hash = crc32(line.encode(), self.trace_hash)
        if self.trace is not None:
            self.trace.append(f"{self.now_us / 1000:.3f} {self.state_of(node)}: {brief(event)}")
            self.trace.extend(f"      {brief(effect)}" for effect in effects)

    def tell(self, text: str) -> None:
        """Put something into the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now_us / 1000:.3f} {text}")
        if self.story is not None:
            self.story.append(f"{self.now_us // 1000:>7} {text}")

    def tell_role(self, node: SimNode, changed: RoleChanged) -> None:
        """Put a change of role into the story."""
        if self.story is None:
            return
        leader = "" if changed.leader_id is None else f", leader {changed.leader_id}"
        if changed.role is Role.LEADER:
            leader = f" from offset {changed.epoch_start_offset}"
        self.story.append(
            f"{self.now_us // 1000:>7} {node} {changed.role.value} in epoch {changed.epoch}{leader}"
        )
