"""What goes wrong in a disturbed world: one fault after the other, each from an rng of its own."""

import errno
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from metadata_topic.raft.epochs import EPOCH_AFTER_JUMP_MAX, EPOCH_MAX, EPOCH_STEP_MAX
from metadata_topic.raft.messages import (
    ANY_REPLICA,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Node,
    Request,
    SnapshotId,
    VoteRequest,
)
from metadata_topic.raft.roles import Role
from tests.support.quorum_world.plan import VOTER_FAULTS, QuorumPlan, address_of, key_of

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode
    from tests.support.quorum_world.world import QuorumWorld

VOTERS_REST_US = 10_000_000
COPY_IS_OLD_US = 2_000_000
LATE_US = 60_000_000
"""So much later than the first nodes the others read where a voter has moved."""
STRANGER = key_of(77)


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    Attributes:
        after_ms: since the one before.
        place: whom it is for, as a part of all nodes; of the leader if `of_leader`.
        part: another number from [0, 1).
    """

    number: int
    kind: str
    after_ms: int
    for_ms: int
    place: float
    of_leader: bool
    part: float

    def __str__(self) -> str:
        return f"fault {self.number}: {self.kind} for {self.for_ms} ms"


def fault(plan: QuorumPlan, number: int) -> Fault:
    """The fault of that number in a plan."""
    rng = Random(f"raft-fault-{plan.seed}-{number}")
    return Fault(
        number,
        rng.choice(plan.kinds),
        int(rng.random() * 2 * plan.fault_every_ms),
        rng.choice((5, 50, 300, 1200, 2500, 4000)),
        rng.random(),
        rng.random() < 0.45,
        rng.random(),
    )


class QuorumFaults:
    """Lets them happen in a world.

    Attributes:
        voter_faults: how many there were, beyond ends of processes, of whom the quorum counts on.
    """

    def __init__(self, world: "QuorumWorld") -> None:
        self._world = world
        self._number = 0
        self._without = frozenset(world.plan.without)
        self._lost_voters: list[int] = []
        self._voters_rest_until = 0
        self.voter_faults: Counter[str] = Counter()

    def next(self) -> None:
        """Wait for the next fault, let it happen, and so on."""
        coming = fault(self._world.plan, self._number)
        self._number += 1
        self._world.at(self._world.now_us + coming.after_ms * 1000, self._comes, coming)

    def counts(self, kind: str) -> None:
        """A voter has met a fault of that kind; the others are spared for a time."""
        self.voter_faults[kind] += 1
        self._voters_rest_until = self._world.now_us + VOTERS_REST_US

    @property
    def count(self) -> int:
        """How many there were."""
        return self._number

    def _comes(self, coming: Fault) -> None:
        if not self._world.is_disturbed:
            return
        if coming.number not in self._without:
            self._happens(coming)
        self.next()

    def _happens(self, coming: Fault) -> None:
        """Faults of voters leave time in which a quorum comes together again."""
        if coming.kind in VOTER_FAULTS and self._world.now_us < self._voters_rest_until:
            others = [one for one in self._world.plan.kinds if one not in VOTER_FAULTS]
            others = others or ["wall_jump"]
            coming = replace(coming, kind=others[coming.number % len(others)])
        node = self._target(coming)
        self._world.tell(f"{coming} at {node}")
        getattr(self, f"_{coming.kind}")(node, coming)

    def _target(self, coming: Fault) -> "QuorumNode":
        """Faults of voters are seldom for others."""
        plan, nodes = self._world.plan, list(self._world.nodes.values())
        if coming.of_leader:
            leaders = [node for node in nodes if node.leads]
            if leaders:
                return leaders[int(coming.part * len(leaders))]
        elif coming.kind in VOTER_FAULTS:
            return self._world.nodes[plan.voters[int(coming.place * len(plan.voters))]]
        return nodes[int(coming.place * len(nodes))]

    # -- of processes ---------------------------------------------------------------------------

    def _crash(self, node: "QuorumNode", coming: Fault) -> None:
        self._world.crash_for(node, coming.for_ms)

    def _crash_within_a_step(self, node: "QuorumNode", coming: Fault) -> None:
        if node.up:
            node.crash_after = int(coming.part * 6)
            node.power_goes = coming.number % 2 == 0
            node.down_ms = coming.for_ms

    def _crash_many(self, node: "QuorumNode", coming: Fault) -> None:
        for other in self._world.nodes.values():
            if other is node or (other.id * 7919 + coming.number) % 100 < coming.part * 100:
                self._world.crash_for(other, coming.for_ms)

    def _one_way(self, node: "QuorumNode", coming: Fault) -> None:
        others = [other for other in self._world.nodes if other != node.id]
        if others:
            other = others[int(coming.part * len(others))]
            self._cut(node.id, other, coming)

    def _isolate(self, node: "QuorumNode", coming: Fault) -> None:
        for other in self._world.nodes:
            if other != node.id:
                if coming.part < 0.8:
                    self._cut(node.id, other, coming)
                if coming.part > 0.1:
                    self._cut(other, node.id, coming)

    def _split(self, node: "QuorumNode", coming: Fault) -> None:
        rng = Random(f"raft-split-{self._world.plan.seed}-{coming.number}")
        there = {other for other in self._world.nodes if rng.random() < 0.5}
        for one in self._world.nodes:
            for other in self._world.nodes:
                if (one in there) != (other in there):
                    self._cut(one, other, coming)

    def _cut(self, source: int, target: int, coming: Fault) -> None:
        self._world.net.cut(source, target, self._world.now_us + coming.for_ms * 2000)

    def _pause(self, node: "QuorumNode", coming: Fault) -> None:
        node.paused_until = self._world.now_us + coming.for_ms * 1500

    def _slow_disk(self, node: "QuorumNode", coming: Fault) -> None:
        until = self._world.now_us + coming.for_ms * 2000
        if coming.part < 0.7:
            node.log_is_slow_until = until
        if coming.part > 0.4:
            node.state_is_slow_until = until

    def _stray(self, node: "QuorumNode", coming: Fault) -> None:
        """Requests of a node that nobody knows; some with numbers that cannot be."""
        if not node.up:
            return
        epoch, end = node.core.epoch, node.disk.end_offset
        pick = int(coming.part * 1000)
        requests: tuple[Request, ...] = (
            VoteRequest(epoch + 1, STRANGER, ANY_REPLICA, epoch, end, pre_vote=pick % 2 == 0),
            VoteRequest(epoch + 1, STRANGER, node.key, epoch, 0, pre_vote=False),
            VoteRequest(epoch, STRANGER, ANY_REPLICA, epoch, end, pre_vote=True),
            VoteRequest(epoch + 10**6, STRANGER, ANY_REPLICA, epoch, end, pre_vote=False),
            FetchRequest(STRANGER, epoch, end + 1000, epoch),
            FetchRequest(STRANGER, epoch, -1, -1),
            FetchRequest(STRANGER, epoch, 0, epoch + 1),
            FetchSnapshotRequest(STRANGER, epoch, SnapshotId(0, 0), 0, 100),
            FetchSnapshotRequest(STRANGER, epoch, SnapshotId(end, epoch), -5, 100),
        )
        # Who may not stand cannot spread an epoch that it was told: it waits until the quorum's own
        # has risen above (as in Kafka).
        if node.config.can_vote and not self._spreads(node):
            requests = tuple(one for one in requests if one.epoch <= epoch)
        request = requests[pick % len(requests)]
        self._deliver(node, request)

    def _spreads(self, node: "QuorumNode") -> bool:
        return node.id in self._world.plan.voters and not node.disk_number

    def _forged(self, node: "QuorumNode", coming: Fault) -> None:
        """Frames that name a voter, or a stranger, and an epoch that nobody has come to.

        Nearer ones are believed, as nobody can tell them from a voter's.
        """
        if not node.up:
            return
        rng = Random(f"raft-forged-{self._world.plan.seed}-{coming.number}")
        mine, end = node.core.epoch, node.disk.end_offset
        epoch = rng.choice(
            (mine + EPOCH_STEP_MAX + 1, 10**9, EPOCH_AFTER_JUMP_MAX, EPOCH_MAX, EPOCH_MAX + 1)
        )
        named = rng.choice([*map(key_of, self._world.plan.voters), STRANGER])
        where = address_of(rng.choice(list(self._world.nodes)))
        leader = Node(named.id, where.host, where.port)
        request: Request = rng.choice(
            (
                BeginQuorumEpochRequest(epoch, named.id, ANY_REPLICA, leader),
                EndQuorumEpochRequest(epoch, named.id, (node.key,), leader),
                VoteRequest(epoch, named, ANY_REPLICA, mine, end, pre_vote=True),
                VoteRequest(epoch, named, ANY_REPLICA, epoch - 1, end + 100, pre_vote=False),
                FetchRequest(named, epoch, end, mine),
                FetchSnapshotRequest(named, epoch, SnapshotId(end, mine), 0, 100),
            )
        )
        if epoch > mine + EPOCH_STEP_MAX:
            self._deliver(node, request)

    def _deliver(self, node: "QuorumNode", request: Request) -> None:
        self._world.at_node(self._world.now_us, node, node.deliver, (node, -1, 0), request)

    def _bad_network(self, node: "QuorumNode", coming: Fault) -> None:
        net, plan = self._world.net, self._world.plan
        net.loss = 0.4 if coming.part < 0.5 else 0.1
        net.duplication = 0.2

        def better() -> None:
            if self._world.is_disturbed:
                net.loss, net.duplication = plan.loss, plan.duplication

        self._world.at(self._world.now_us + coming.for_ms * 1000, better)

    # -- of machines, disks and addresses ----------------------------------------------------------

    def _power_cut(self, node: "QuorumNode", coming: Fault) -> None:
        self._world.crash_for(node, coming.for_ms, power=True)

    def _power_cut_all(self, node: "QuorumNode", coming: Fault) -> None:
        for other in self._world.nodes.values():
            self._world.crash_for(other, coming.for_ms, power=True)

    def _crash_in_disk(self, node: "QuorumNode", coming: Fault) -> None:
        """Within its next changes of the disk; a node that is down, within those of its start."""
        changes = 1 + int(coming.part**2 * 60)
        node.power_goes = coming.number % 3 != 0
        node.down_ms = coming.for_ms
        if node.up and node.process is not None:
            node.process.disk.end_after(changes)
        if not node.up or coming.number % 4 == 1:
            node.start_ends_after = 1 + changes // 2

    def _broken_disk(self, node: "QuorumNode", coming: Fault) -> None:
        some = ({"fsync"}, {"append"}, {"rename", "fsync_path"}, {"read_at"}, {"open_read"})
        operations = some[int(coming.part * len(some))]
        self._fail_disk(node, coming, errno.EIO, operations)

    def _full_disk(self, node: "QuorumNode", coming: Fault) -> None:
        operations = {"append", "write_at", "open_append", "open_empty", "make_dirs"}
        self._fail_disk(node, coming, errno.ENOSPC, operations)

    def _fail_disk(
        self, node: "QuorumNode", coming: Fault, error: int, operations: set[str]
    ) -> None:
        until = self._world.now_us + coming.for_ms * 1000
        node.disk_fault = (until, error, frozenset(operations))

    def _wall_jump(self, node: "QuorumNode", coming: Fault) -> None:
        node.clock.wall_offset_ms += int((coming.part - 0.5) * 2 * 40_000_000)

    def _resign(self, node: "QuorumNode", _coming: Fault) -> None:
        if node.leads:
            world = self._world
            world.at_node(world.now_us, node, node.replica.driver.resign, "a fault says so")

    def _close(self, node: "QuorumNode", _coming: Fault) -> None:
        if node.up and node.replica is not None and not node.closing:
            self._world.at_node(self._world.now_us, node, node.close)
            self._world.expect_closed(node)

    def _lose_disk(self, node: "QuorumNode", coming: Fault) -> None:
        """A static voter whose disk is lost votes again at once: as docs/controllers.md has it."""
        world, voters = self._world, self._world.plan.voters

        def lose() -> None:
            if node.id in voters:
                self.counts("lose_disk")
            world.crash_for(node, coming.for_ms)
            world.lose_disk(node)

        if node.id not in voters:
            lose()
        elif not world.plan.dynamic:
            self._once_safe(node, lose)
        elif node.id not in self._lost_voters and len(self._lost_voters) < (len(voters) - 1) // 2:
            self._lost_voters.append(node.id)
            lose()

    def _old_copy(self, node: "QuorumNode", coming: Fault) -> None:
        """Its directory is copied while it is down, or such a copy is put back."""
        world, had_one = self._world, node.copy is not None
        is_voter = node.id in world.plan.voters

        def put_back() -> None:
            world.crash_for(node, coming.for_ms)
            if node.copy is not None:
                node.put_copy_back()
                if is_voter:
                    self.counts("old_copy")

        if not had_one or coming.part < 0.3:
            world.crash_for(node, coming.for_ms)
            if not node.has_lost_vote:
                node.copy = node.machine.copy_files()
        if is_voter:
            world.at(world.now_us + COPY_IS_OLD_US, self._once_safe, node, put_back)
        elif had_one:
            put_back()

    def _once_safe(self, node: "QuorumNode", fn: Callable[[], None], looks: int = 200) -> None:
        """Wait until all others have what was committed, as a person does, but not for ever."""
        world = self._world
        if not world.is_disturbed or not looks:
            return
        if world.now_us >= self._voters_rest_until and self._can_do_without(node):
            world.tell(f"{node} can be done without")
            fn()
        else:
            world.at(world.now_us + 100_000, self._once_safe, node, fn, looks - 1)

    def _can_do_without(self, node: "QuorumNode") -> bool:
        """Whether all the other voters have all that was committed, and follow one of them.

        Then a disk that has forgotten votes and records takes nothing with it.
        """
        world, leader = self._world, self._world.leader
        others = [world.nodes[one] for one in world.plan.voters if one != node.id]
        if leader not in others or len(others) < len(world.plan.voters) // 2 + 1:
            return False
        core = leader.core
        voters = {key_of(one) for one in world.plan.voters}
        return all(
            world.oracle.who(one.key) in voters  # not one that lost its disk, and its vote
            and one.up
            and one.replica is not None
            and (one is leader or one.core.role is Role.FOLLOWER)
            and one.core.epoch == core.epoch
            and one.disk.election is not None
            and one.disk.election.epoch == core.epoch
            and one.disk.flushed_end == core.log.end_offset == core.high_watermark
            for one in others
        )

    def _lose_vote(self, node: "QuorumNode", coming: Fault) -> None:
        world = self._world
        if node.id in world.plan.voters and not node.disk_number:
            world.crash_for(node, coming.for_ms)
            if can_tell(node, is_alone=len(world.plan.voters) == 1):
                self.counts("lose_vote")
                node.lose_vote()

    def _move(self, node: "QuorumNode", coming: Fault) -> None:
        """A static voter listens elsewhere; all are restarted, as docs/controllers.md has it.

        So many soon that with it they are a majority; the others after a while, in which they have
        to be told.
        """
        world = self._world
        if world.plan.dynamic or node.id not in world.plan.voters:
            self._take_address(node, coming)
            return
        if any(one.has_old_settings for one in world.nodes.values() if one.up):
            return  # they are still at it
        self.counts("move")
        rng = Random(f"quorum-move-{world.plan.seed}-{coming.number}")
        if coming.part < 0.5:
            world.crash_for(node, coming.for_ms)
        world.addresses.move(node, self._heir(node, rng))
        others = [one for one in world.plan.voters if one != node.id]
        soon = rng.sample(others, len(world.plan.voters) // 2)
        rest = [one for one in world.nodes if one not in soon]
        late = rng.sample(rest, len(rest))
        late_us = LATE_US if len(world.plan.voters) > 2 else 0
        at_us, gap_us = world.now_us, 200_000 + int(rng.random() * 1_500_000)
        for other in (*soon, *late):
            at_us += gap_us + (late_us if other == late[0] else 0)
            world.at(at_us, self._learn, world.nodes[other])

    def _learn(self, node: "QuorumNode") -> None:
        world = self._world
        if world.is_disturbed and node.up and node.has_old_settings:
            world.crash_for(node, 50)

    def _take_address(self, node: "QuorumNode", coming: Fault) -> None:
        """Where a node listens another is met for a while, or nobody."""
        world = self._world
        rng = Random(f"quorum-move-{world.plan.seed}-{coming.number}")
        world.addresses.take(node, self._heir(node, rng))
        until_us = world.now_us + coming.for_ms * 2000
        world.at(until_us, world.addresses.give_back, node)

    def _heir(self, node: "QuorumNode", rng: Random) -> int | None:
        others = [one for one in self._world.nodes if one != node.id]
        return rng.choice(others) if others and rng.random() < 0.5 else None

    def _snapshot(self, node: "QuorumNode", coming: Fault) -> None:
        if node.up and node.replica is not None:
            self._world.at_node(self._world.now_us, node, node.replica.snapshot, lambda _made: None)


def can_tell(node: "QuorumNode", *, is_alone: bool) -> bool:
    """Whether a start without quorum-state can go well.

    With nothing in the log nobody could tell that it is missing. A sole voter continues in the
    epoch after its log's last one: it leads one twice of which it has nothing that a power cut
    leaves.
    """
    disk = node.disk
    last, election = disk.batch_ending_at(disk.flushed_end), disk.election
    if last is None:
        return False
    return not is_alone or election is None or last.facts.epoch >= election.epoch
