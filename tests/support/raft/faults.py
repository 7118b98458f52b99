"""What goes wrong in a disturbed world: one fault after the other, each from dice of its own."""

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from metadata_topic.raft.epochs import EPOCH_AFTER_JUMP_MAX, EPOCH_MAX, EPOCH_STEP_MAX
from metadata_topic.raft.events import Closing, Resign
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
from tests.support.raft.plan import Plan, address_of, key_of

if TYPE_CHECKING:
    from tests.support.raft.sim_node import SimNode
    from tests.support.raft.world import World


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


def fault(plan: Plan, number: int) -> Fault:
    """The fault of that number in a plan."""
    dice = Random(f"raft-fault-{plan.seed}-{number}")
    return Fault(
        number,
        dice.choice(plan.kinds),
        int(dice.random() * 2 * plan.fault_every_ms),
        dice.choice((5, 50, 300, 1200, 2500, 4000)),
        dice.random(),
        dice.random() < 0.45,
        dice.random(),
    )


class Faults:
    """Lets them happen in a world.

    Attributes:
        voter_faults: how many there were, beyond ends of processes, of whom the quorum counts on.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self._number = 0
        self._without = frozenset(world.plan.without)
        self._lost_voters: list[int] = []
        self.voter_faults: Counter[str] = Counter()

    def next(self) -> None:
        """Wait for the next fault, let it happen, and so on."""
        coming = fault(self._world.plan, self._number)
        self._number += 1
        self._world.at(self._world.now_us + coming.after_ms * 1000, self._comes, coming)

    def counts(self, kind: str) -> None:
        """A voter has met a fault of that kind."""
        self.voter_faults[kind] += 1

    @property
    def count(self) -> int:
        """How many there were."""
        return self._number

    def _comes(self, coming: Fault) -> None:
        if not self._world.is_disturbed:
            return
        if coming.number not in self._without:
            self.happens(coming)
        self.next()

    def happens(self, coming: Fault) -> None:
        """Let one happen."""
        node = self._target(coming)
        self._world.tell(f"{coming} at {node}")
        getattr(self, f"_{coming.kind}")(node, coming)

    def _target(self, coming: Fault) -> "SimNode":
        nodes = list(self._world.nodes.values())
        if coming.of_leader:
            leaders = [node for node in nodes if node.leads]
            if leaders:
                return leaders[int(coming.part * len(leaders))]
        return nodes[int(coming.place * len(nodes))]

    def _crash(self, node: "SimNode", coming: Fault) -> None:
        self._world.crash_for(node, coming.for_ms)

    def _crash_within_a_step(self, node: "SimNode", coming: Fault) -> None:
        if node.up:
            node.crash_after = int(coming.part * 6)
            node.down_ms = coming.for_ms

    def _crash_many(self, node: "SimNode", coming: Fault) -> None:
        for other in self._world.nodes.values():
            if other is node or (other.id * 7919 + coming.number) % 100 < coming.part * 100:
                self._world.crash_for(other, coming.for_ms)

    def _one_way(self, node: "SimNode", coming: Fault) -> None:
        others = [other for other in self._world.nodes if other != node.id]
        if others:
            other = others[int(coming.part * len(others))]
            self._cut(node.id, other, coming)

    def _isolate(self, node: "SimNode", coming: Fault) -> None:
        for other in self._world.nodes:
            if other != node.id:
                if coming.part < 0.8:
                    self._cut(node.id, other, coming)
                if coming.part > 0.1:
                    self._cut(other, node.id, coming)

    def _split(self, node: "SimNode", coming: Fault) -> None:
        dice = Random(f"raft-split-{self._world.plan.seed}-{coming.number}")
        there = {other for other in self._world.nodes if dice.random() < 0.5}
        for one in self._world.nodes:
            for other in self._world.nodes:
                if (one in there) != (other in there):
                    self._cut(one, other, coming)

    def _cut(self, source: int, target: int, coming: Fault) -> None:
        self._world.net.cut(source, target, self._world.now_us + coming.for_ms * 2000)

    def _pause(self, node: "SimNode", coming: Fault) -> None:
        node.paused_until = self._world.now_us + coming.for_ms * 1500

    def _slow_disk(self, node: "SimNode", coming: Fault) -> None:
        until = self._world.now_us + coming.for_ms * 2000
        if coming.part < 0.7:
            node.log_is_slow_until = until
        if coming.part > 0.4:
            node.state_is_slow_until = until

    def _resign(self, node: "SimNode", coming: Fault) -> None:
        if node.leads:
            self._world.give(node, Resign(coming.part))

    def _close(self, node: "SimNode", coming: Fault) -> None:
        if node.up and not node.closing:
            node.closing = True
            self._world.give(node, Closing(coming.part))
            self._world.expect_closed(node)

    def _lose_disk(self, node: "SimNode", coming: Fault) -> None:
        voters = self._world.plan.voters
        if node.id in voters:
            if not self._world.plan.dynamic or node.id in self._lost_voters:
                return
            if len(self._lost_voters) >= (len(voters) - 1) // 2:
                return
            self._lost_voters.append(node.id)
            self.counts("lose_disk")
        self._world.crash_for(node, coming.for_ms)
        self._world.lose_disk(node)

    def _stray(self, node: "SimNode", coming: Fault) -> None:
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
        spreads = node.id in self._world.plan.voters and not node.disk_number
        if node.config.can_vote and not spreads:
            requests = tuple(one for one in requests if one.epoch <= epoch)
        request = requests[pick % len(requests)]
        self._deliver(node, request)

    def _forged(self, node: "SimNode", coming: Fault) -> None:
        """Frames that name a voter, or a stranger, and an epoch that nobody has come to.

        Nearer ones are believed, as nobody can tell them from a voter's.
        """
        if not node.up:
            return
        dice = Random(f"raft-forged-{self._world.plan.seed}-{coming.number}")
        mine, end = node.core.epoch, node.disk.end_offset
        epoch = dice.choice(
            (mine + EPOCH_STEP_MAX + 1, 10**9, EPOCH_AFTER_JUMP_MAX, EPOCH_MAX, EPOCH_MAX + 1)
        )
        named = dice.choice([*map(key_of, self._world.plan.voters), STRANGER])
        where = address_of(dice.choice(list(self._world.nodes)))
        leader = Node(named.id, where.host, where.port)
        request: Request = dice.choice(
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

    def _deliver(self, node: "SimNode", request: Request) -> None:
        self._world.at_node(self._world.now_us, node, node.deliver, (node, -1, 0), request)

    def _bad_network(self, node: "SimNode", coming: Fault) -> None:
        net, plan = self._world.net, self._world.plan
        net.loss = 0.4 if coming.part < 0.5 else 0.1
        net.duplication = 0.2

        def better() -> None:
            if self._world.is_disturbed:
                net.loss, net.duplication = plan.loss, plan.duplication

        self._world.at(self._world.now_us + coming.for_ms * 1000, better)
