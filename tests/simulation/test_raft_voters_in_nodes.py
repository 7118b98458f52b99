"""Voters that come and go in simulated quorums of the product's own nodes (KIP-853).

make simulate SEEDS=5000-5299 EVENTS=2500    # many seeds
"""

import pytest

from metadata_topic.raft.roles import Role
from tests.support.nodes_world.plan import nodes_plan_of
from tests.support.quorum_world.plan import CHANGE_SEEDS, QuorumPlan, plan_of, quorum_plan_of
from tests.support.quorum_world.world import QuorumWorld, simulated

pytestmark = pytest.mark.lasts(seconds=10)


def test_voters_change_from_a_seed_on_and_in_this_world_alone() -> None:
    assert quorum_plan_of(CHANGE_SEEDS - 1) == plan_of(CHANGE_SEEDS - 1)
    assert quorum_plan_of(CHANGE_SEEDS).change_every_ms > 0
    assert nodes_plan_of(CHANGE_SEEDS).change_every_ms == 0


@pytest.mark.parametrize("joins", [False, True])
def test_in_good_weather_voters_come_and_go_and_the_leader_removes_itself(joins: bool) -> None:
    plan = QuorumPlan(
        seed=7,
        outsiders=(11, 12),
        propose_every_ms=50,
        change_every_ms=300,
        joins=joins,
        snapshot_bytes=2_000,
        retention_bytes=1_000,
        segment_bytes=1_000,
    )
    with simulated():
        world = QuorumWorld(plan)
        world.start()
        world.run_for(20_000)
        world.calm_down()
        roles = [node.core.role for node in world.nodes.values()]
    sets = [set(voters.ids) for _, voters in world.oracle.voters.committed]
    assert roles.count(Role.LEADER) == 1
    assert world.operator.done > 10
    assert len(sets) > 10
    assert set().union(*sets) == {1, 2, 3, 11, 12}
    assert world.oracle.elections > 1, "nobody else gave it up: a leader has removed itself"
