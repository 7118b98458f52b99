"""Scenarios of Kafka's own simulation of Raft about partitions, by their names there.

Each runs with several seeds, with static and with dynamic voters, while clients ask for changes all
the time and snapshots are made; the oracle checks its rules after every step. The other scenarios
(first elections, killed and stopped nodes, lost disks) are met by seeds of `test_raft_quorum.py`.

Source: RaftEventSimulationTest of Apache Kafka 4.x. Two names are shorter here than
`leadershipAssignedOnlyOnceWithNetworkPartitionIfThereExistsMajority` and
`leadershipWillNotChangeDuringNetworkPartitionIfMajorityStillReachable`.
"""

from collections.abc import Collection, Iterator
from random import Random

import pytest

from metadata_topic.raft.messages import Request, Response
from tests.support.quorum_world.node import QuorumNode
from tests.support.quorum_world.plan import QuorumPlan
from tests.support.quorum_world.world import QuorumWorld, simulated
from tests.support.rounds import rounds

SEEDS = range(rounds("TIDEMARK_RAFT_SCENARIO_SEEDS", quick=1, full=30))
pytestmark = pytest.mark.rounds(seconds=2)
both_kinds_of_voters = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
each_seed = pytest.mark.parametrize("seed", SEEDS)
PROGRESS = 10
FOR_EVER_MS = 10**9


@pytest.fixture(autouse=True)
def simulation() -> Iterator[None]:
    with simulated():
        yield


class Scenario:
    """A quorum whose leader gets a change about every 100 ms."""

    def __init__(self, seed: int, voters: int, observers_max: int, *, dynamic: bool) -> None:
        observers = Random(f"raft-scenario-{seed}").randint(0, observers_max)
        plan = QuorumPlan(
            seed=seed,
            voters=tuple(range(1, voters + 1)),
            observers=tuple(range(101, 101 + observers)),
            dynamic=dynamic,
            delay_us=(500, 2_000),
            disk_us=(200, 1_000),
            propose_every_ms=100,
            snapshot_bytes=500,
            retention_bytes=500,
            segment_bytes=400,
            clock_skew=0.01,
        )
        self.world = QuorumWorld(plan)
        self.voters = [self.world.nodes[one] for one in plan.voters]

    def begin(self) -> QuorumNode:
        """Start all; the leader once something is committed."""
        self.world.start()
        self.until_some_reach(PROGRESS)
        return self.leader()

    def leader(self) -> QuorumNode:
        leader = self.world.leader
        assert leader is not None, self.world.states
        return leader

    @property
    def committed(self) -> int:
        return self.world.oracle.high_watermark

    def reached(self, node: QuorumNode) -> int:
        return node.core.high_watermark if node.up else -1

    def until_some_reach(self, offset: int) -> None:
        nodes = self.world.nodes.values()
        done = self.world.run_until(lambda: any(self.reached(one) >= offset for one in nodes))
        assert done, self.world.states

    def until_all_reach(self, offset: int, nodes: Collection[QuorumNode] = ()) -> None:
        nodes = nodes or self.world.nodes.values()
        done = self.world.run_until(lambda: all(self.reached(one) >= offset for one in nodes))
        assert done, self.world.states

    def others(self, *nodes: QuorumNode) -> list[QuorumNode]:
        return [one for one in self.world.nodes.values() if one not in nodes]

    def cut_off(self, node: QuorumNode) -> None:
        until_us = self.world.now_us + FOR_EVER_MS * 1000
        for other in self.others(node):
            self.world.net.cut(node.id, other.id, until_us)
            self.world.net.cut(other.id, node.id, until_us)

    def without_requests(self, ways: set[tuple[int, int]]) -> None:
        """Let no request go these ways (from, to); answers come back."""

        def goes(source: int, target: int, message: Request | Response) -> bool:
            return not (isinstance(message, Request) and (source, target) in ways)

        self.world.net.only = goes


@each_seed
@both_kinds_of_voters
def test_can_elect_new_leader_after_old_leader_partitioned_away(seed: int, dynamic: bool) -> None:
    quorum = Scenario(seed, 3 + seed % 3, 5, dynamic=dynamic)
    leader = quorum.begin()
    quorum.cut_off(leader)
    before = quorum.committed
    quorum.until_all_reach(before + PROGRESS, quorum.others(leader))
    assert quorum.leader() is not leader


def _kip_996(a: int, b: int, c: int, d: int, e: int) -> set[tuple[int, int]]:
    """A reaches C only, B reaches D only; C, D and E reach each other, E neither A nor B."""
    blocked = {a: (b, d, e), b: (a, c, e), c: (b,), d: (a,), e: (a, b)}
    return {(source, target) for source, targets in blocked.items() for target in targets}


@each_seed
@both_kinds_of_voters
def test_leadership_assigned_once_in_network_partition_if_majority_exists(
    seed: int, dynamic: bool
) -> None:
    quorum = Scenario(seed, 5, 3, dynamic=dynamic)
    quorum.without_requests(_kip_996(1, 2, 3, 4, 5))
    leader = quorum.begin()
    cut_off = {3: {2}, 4: {1}, 5: {1, 2}}[leader.id]
    majority = [node for node in quorum.voters if node.id not in cut_off]
    quorum.until_all_reach(quorum.committed + 2 * PROGRESS, majority)
    assert quorum.leader() is leader
    assert quorum.world.oracle.elections == 1


@each_seed
@both_kinds_of_voters
def test_leadership_unchanged_in_network_partition_if_majority_reachable(
    seed: int, dynamic: bool
) -> None:
    quorum = Scenario(seed, 5, 3, dynamic=dynamic)
    leader = quorum.begin()
    elections = quorum.world.oracle.elections
    a, b, d, e = (node for node in quorum.voters if node is not leader)
    quorum.without_requests(_kip_996(a.id, b.id, leader.id, d.id, e.id))
    quorum.world.run_for(20_000)
    quorum.until_all_reach(quorum.committed + PROGRESS, [a, leader, d, e])
    assert quorum.leader() is leader
    assert quorum.world.oracle.elections == elections
