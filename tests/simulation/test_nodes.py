"""Brokers and controllers of the product as nodes of simulated clusters.

make simulate WORLD=nodes SEEDS=1000-1299 EVENTS=5000    # many seeds
"""

import pytest

from tests.support.nodes_world.plan import NodesPlan, nodes_plan_of
from tests.support.nodes_world.world import NodesWorld
from tests.support.planted_bugs import recorded_seeds
from tests.support.quorum_world.seeds import replay_line, run_plan
from tests.support.quorum_world.world import simulated

pytestmark = pytest.mark.lasts(seconds=20)

EVENTS = 2500


def hold(seed: int, events: int) -> None:
    """Run a seed to its end."""
    plan = nodes_plan_of(seed)
    outcome = run_plan(plan, events)
    replay = replay_line(outcome, events, plan)
    assert outcome.violation is None, f"{outcome.violation}\nreplay: {replay}"


@pytest.mark.parametrize("seed", sorted(recorded_seeds("nodes")))
def test_every_rule_holds_after_every_event(seed: int) -> None:
    """In the seeds that find a planted bug; `make simulate-bugs` tells how to record them again."""
    hold(seed, EVENTS)


@pytest.mark.long(seconds=240)
@pytest.mark.parametrize("block", range(4))
def test_every_rule_holds_in_many_seeds(block: int) -> None:
    for seed in range(1000 + block * 50, 1050 + block * 50):
        hold(seed, 5000)


@pytest.mark.parametrize("combined", [(), (1, 2)])
def test_an_undisturbed_cluster_fences_nobody_and_does_what_it_is_asked(
    combined: tuple[int, ...],
) -> None:
    plan = NodesPlan(combined=combined, observers=(101, 102), askers=2, ask_every_ms=100)
    with simulated():
        world = NodesWorld(plan)
        world.start()
        world.run_for(20_000)
        world.calm_down()
        world.end()
    told = world.workload.askers.told
    assert world.lives.fences == 0
    assert told["NONE"] > 50
    assert not {"NOT_CONTROLLER", "REQUEST_TIMED_OUT"} & told.keys()
    assert world.workload.tiers.answers > 20
    assert world.workload.tiers.deleted
