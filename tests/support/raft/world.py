"""A simulated quorum of cores: models of nodes, network, disks, clocks and faults of one plan."""

from collections.abc import Callable
from random import Random
from typing import Any

from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.effects import RoleChanged
from metadata_topic.raft.events import Event, LogStartRaised, Proposed, SnapshotWritten
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import NOBODY, BatchFacts, Node, SnapshotId
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import ReplicaKey, VoterSet
from tests.support.raft.base_world import BaseWorld
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
CLOSED_WITHIN_MS = 12_000
"""A generous multiple of the core's own limit: clocks run apart and disks are slow."""
SNAPSHOT_CHUNK_BYTES = 16
BACKLOG_MAX = 200
"""A leader with more uncommitted records gets no further ones."""


def real_core(key: ReplicaKey, config: RaftConfig) -> Any:
    """Make what is tested."""
    from metadata_topic.raft.core import RaftCore

    return RaftCore(key, config)


class World(BaseWorld[SimNode]):
    """See the module.

    Attributes:
        damage_chance: of a fetched snapshot.
        slow_read_chance: of records, which are else read at once.
    """

    closed_within_ms = CLOSED_WITHIN_MS

    def __init__(
        self, plan: Plan, *, make_core: CoreFactory = real_core, trace_lines: int = 0
    ) -> None:
        super().__init__(plan, dice="raft", trace_lines=trace_lines)
        self.make_core = make_core
        self.story: list[str] | None = None
        self.reports: list[str] = []
        self._payloads = 0
        self.core_dice = Random(f"raft-core-{plan.seed}")
        self.damage_chance = 0.02 if plan.disturbed else 0.0
        self.slow_read_chance = 0.1 if plan.disturbed else 0.0
        self.written_snapshots: dict[bytes, StoredSnapshot] = {}
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

    # What a world is asked for

    def turn(self) -> None:
        """Let the next thing happen."""
        self.timeline.turn()

    def start_at(self, at_us: int, node: SimNode, fn: Callable[..., object], *args: Any) -> None:
        """Let something happen to a node that is down, paused or not."""
        self.at(at_us, fn, *args)

    def start_work(self) -> None:
        """Propose records, make snapshots."""
        if self.plan.propose_every_ms:
            self._repeat(self.plan.propose_every_ms, self._propose_somewhere)
        if self.plan.snapshot_every_ms:
            self._repeat(self.plan.snapshot_every_ms, self._snapshot_somewhere)

    def _repeat(self, mean_ms: int, work: Callable[[], None]) -> None:
        def turn() -> None:
            work()
            wait()

        def wait() -> None:
            self.at(self.now_us + 1 + int(self.work_dice.random() * 2000 * mean_ms), turn)

        wait()

    def when_equal(self) -> None:
        """What is proposed is committed, and nobody waits for an answer."""
        self._one_more_commit()
        self._nobody_waits()

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
        """End what disturbs."""
        self.damage_chance = 0.0
        super().heal()
        self.timeline.make_up_for_pauses()

    def heal_node(self, node: SimNode) -> None:
        """End what a slow disk has begun, or start it."""
        if node.up:
            node.disk_time.mend()
        else:
            node.start()

    # What is done to nodes

    def give(self, node: SimNode, event: Event) -> None:
        """Let a node have an event, when it runs."""
        self.at_node(self.now_us, node, node.step, event)

    def lose_disk(self, node: SimNode) -> None:
        """Give a node that is down an empty disk with another directory id."""
        assert not node.up
        self.oracle.lost_disks[node.key] = node.disk
        node.disk_number += 1
        node.disk = self._formatted(node.id, node.disk_number)
        node.leader_log_start = 0

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
        random = self.work_dice.random
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
        dice = self.work_dice
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

    def tell(self, text: str) -> None:
        """Put something into trace and story."""
        super().tell(text)
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
