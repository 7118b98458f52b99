"""The scenarios of Kafka's own simulation of Raft, by their names there.

Each runs with several seeds, with static and with dynamic voters, while records are proposed all
the time and snapshots are made; the oracle checks its rules after every step. Those about changes
of the voters are missing: voters cannot be changed yet.

Source: RaftEventSimulationTest of Apache Kafka 4.x.
"""

from collections.abc import Collection
from random import Random

import pytest

from metadata_topic.raft.events import Closing
from metadata_topic.raft.messages import Request, Response
from tests.support.raft.plan import Plan
from tests.support.raft.sim_node import SimNode
from tests.support.raft.world import World
from tests.support.rounds import rounds

SEEDS = range(rounds("TIDEMARK_RAFT_SCENARIO_SEEDS", quick=3, full=30))
pytestmark = pytest.mark.rounds(seconds=2)
both_kinds_of_voters = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
each_seed = pytest.mark.parametrize("seed", SEEDS)
PROGRESS = 10
FOR_EVER_MS = 10**9


class Scenario:
    """A quorum whose leader gets a record about every 100 ms."""

    def __init__(self, seed: int, voters: int, observers_max: int, *, dynamic: bool) -> None:
        self.dice = Random(f"raft-scenario-{seed}")
        observers = self.dice.randint(0, observers_max)
        plan = Plan(
            seed=seed,
            voters=tuple(range(1, voters + 1)),
            observers=tuple(range(101, 101 + observers)),
            dynamic=dynamic,
            delay_us=(500, 2_000),
            disk_us=(200, 1_000),
            propose_every_ms=100,
            snapshot_every_ms=200,
            clock_skew=0.01,
        )
        self.world = World(plan, trace_lines=100)
        self.voters = [self.world.nodes[one] for one in plan.voters]

    @classmethod
    def sized(cls, seed: int, least: int, *, dynamic: bool, observers_max: int = 5) -> "Scenario":
        """With `least` to five voters."""
        voters = least + seed % (6 - least)
        return cls(seed, voters, observers_max, dynamic=dynamic)

    def begin(self) -> SimNode:
        """Start all; the leader once something is committed."""
        self.world.start()
        self.until_some_reach(PROGRESS)
        return self.leader()

    def leader(self) -> SimNode:
        leader = self.world.leader
        assert leader is not None, self.world.states
        return leader

    @property
    def committed(self) -> int:
        return self.world.oracle.high_watermark

    def reached(self, node: SimNode) -> int:
        return node.core.high_watermark if node.up else -1

    def until_some_reach(self, offset: int) -> None:
        nodes = self.world.nodes.values()
        done = self.world.run_until(lambda: any(self.reached(one) >= offset for one in nodes))
        assert done, self.world.states

    def until_all_reach(self, offset: int, nodes: Collection[SimNode] = ()) -> None:
        nodes = nodes or self.world.nodes.values()
        done = self.world.run_until(lambda: all(self.reached(one) >= offset for one in nodes))
        assert done, self.world.states

    def until_another_leads(self, than: SimNode) -> SimNode:
        done = self.world.run_until(lambda: self.world.leader not in (None, than))
        assert done, self.world.states
        return self.leader()

    def others(self, *nodes: SimNode) -> list[SimNode]:
        return [one for one in self.world.nodes.values() if one not in nodes]

    def cut_off(self, node: SimNode) -> None:
        until_us = self.world.now_us + FOR_EVER_MS * 1000
        for other in self.others(node):
            self.world.net.cut(node.id, other.id, until_us)
            self.world.net.cut(other.id, node.id, until_us)

    def without_requests(self, ways: set[tuple[int, int]]) -> None:
        """Let no request go these ways (from, to); answers come back."""

        def goes(source: int, target: int, message: Request | Response) -> bool:
            return not (isinstance(message, Request) and (source, target) in ways)

        self.world.net.only = goes

    def reconnect(self) -> None:
        self.world.net.cuts.clear()
        self.world.net.only = None


@each_seed
@both_kinds_of_voters
@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_can_elect_initial_leader(seed: int, dynamic: bool, voters: int) -> None:
    Scenario(seed, voters, 5, dynamic=dynamic).begin()


@each_seed
@both_kinds_of_voters
@pytest.mark.parametrize("is_graceful", [False, True], ids=["killed", "stopped"])
def test_can_elect_new_leader_after_old_leader_failure(
    seed: int, dynamic: bool, is_graceful: bool
) -> None:
    quorum = Scenario.sized(seed, 3, dynamic=dynamic)
    leader = quorum.begin()
    if is_graceful:
        leader.closing = True
        quorum.world.give(leader, Closing(0.5))
        assert quorum.world.run_until(lambda: not leader.up), quorum.world.states
    else:
        leader.crash()
    quorum.until_all_reach(quorum.committed + PROGRESS, quorum.others(leader))
    if not leader.up:  # a node that was told to stop comes back by itself
        leader.start()
    quorum.until_all_reach(quorum.committed + PROGRESS)


@each_seed
@both_kinds_of_voters
def test_can_recover_after_all_nodes_killed(seed: int, dynamic: bool) -> None:
    quorum = Scenario.sized(seed, 1, dynamic=dynamic)
    quorum.begin()
    before = quorum.committed
    for node in quorum.world.nodes.values():
        node.crash()
    majority = quorum.dice.sample(quorum.voters, len(quorum.voters) // 2 + 1)
    for node in majority:
        node.start()
    quorum.until_all_reach(before + PROGRESS, majority)


@each_seed
@both_kinds_of_voters
def test_can_elect_new_leader_after_old_leader_partitioned_away(seed: int, dynamic: bool) -> None:
    quorum = Scenario.sized(seed, 3, dynamic=dynamic)
    leader = quorum.begin()
    quorum.cut_off(leader)
    before = quorum.committed
    quorum.until_all_reach(before + PROGRESS, quorum.others(leader))
    assert quorum.leader() is not leader


@each_seed
@both_kinds_of_voters
def test_can_make_progress_if_majority_is_reachable(seed: int, dynamic: bool) -> None:
    quorum = Scenario(seed, 5, 3, dynamic=dynamic)
    quorum.begin()
    few, many = quorum.voters[:2], quorum.voters[2:]
    ways = {(one.id, other.id) for one in few for other in many}
    quorum.without_requests(ways | {(there, here) for here, there in ways})
    end = max(node.disk.end_offset for node in quorum.voters)
    quorum.until_some_reach(2 * end)
    assert max(map(quorum.reached, many)) > max(map(quorum.reached, few))
    quorum.reconnect()
    end = max(node.disk.end_offset for node in quorum.voters)
    quorum.until_all_reach(end + PROGRESS)


def _kip_996(a: int, b: int, c: int, d: int, e: int) -> set[tuple[int, int]]:
    """A reaches C only, B reaches D only; C, D and E reach each other, E neither A nor B."""
    blocked = {a: (b, d, e), b: (a, c, e), c: (b,), d: (a,), e: (a, b)}
    return {(source, target) for source, targets in blocked.items() for target in targets}


@each_seed
@both_kinds_of_voters
def test_leadership_assigned_only_once_with_network_partition_if_there_exists_majority(
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
def test_leadership_will_not_change_during_network_partition_if_majority_still_reachable(
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


@each_seed
@both_kinds_of_voters
def test_can_make_progress_after_back_to_back_leader_failures(seed: int, dynamic: bool) -> None:
    quorum = Scenario.sized(seed, 3, dynamic=dynamic)
    first = quorum.begin()
    quorum.cut_off(first)
    second = quorum.until_another_leads(first)
    quorum.reconnect()
    quorum.cut_off(second)
    quorum.until_some_reach(quorum.committed + PROGRESS)
    quorum.until_all_reach(quorum.committed + PROGRESS, quorum.others(second))


@each_seed
def test_can_recover_from_single_node_committed_data_loss(seed: int) -> None:
    """With directory ids: an empty disk has a new one, and its node does not vote any more.

    Static voters cannot tell an empty disk from their own; docs/operations.md says so.
    """
    quorum = Scenario.sized(seed, 3, dynamic=True, observers_max=2)
    quorum.begin()
    node = quorum.dice.choice(quorum.voters)
    node.crash()
    quorum.world.lose_disk(node)
    others = quorum.others(node)
    quorum.until_another_leads(node)
    before = quorum.committed
    node.start()
    quorum.until_all_reach(before + PROGRESS, [*others, node])
    assert not node.leads
