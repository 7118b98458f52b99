"""Replicated partitions of the product on simulated clusters.

make simulate WORLD=replication SEEDS=1000-1099 EVENTS=3000    # many seeds
"""

import pytest

from tests.support.planted_bugs import recorded_seeds
from tests.support.quorum_world.seeds import replay_line, run_plan
from tests.support.quorum_world.world import simulated
from tests.support.replication_world.plan import (
    TopicPlan,
    events_of,
    replication_plan_of,
    undisturbed,
)
from tests.support.replication_world.world import ReplicationWorld

pytestmark = pytest.mark.lasts(seconds=60)


def hold(seed: int, events: int) -> None:
    """Run a seed to its end."""
    plan = replication_plan_of(seed)
    outcome = run_plan(plan, events)
    replay = replay_line(outcome, events, plan)
    assert outcome.violation is None, f"{outcome.violation}\nreplay: {replay}"


@pytest.mark.parametrize("seed", sorted(recorded_seeds("replication")))
def test_every_rule_holds_after_every_event(seed: int) -> None:
    """In the seeds that find a planted bug; `make simulate-bugs` tells how to record them again."""
    hold(seed, events_of(seed))


@pytest.mark.parametrize("seed", [110, 118])
def test_every_rule_holds_with_groups(seed: int) -> None:
    """In both a coordinator that moves has commits to load."""
    hold(seed, events_of(seed))


@pytest.mark.long(seconds=300)
@pytest.mark.parametrize("block", range(4))
def test_every_rule_holds_in_many_seeds(block: int) -> None:
    for seed in range(1000 + block * 5, 1005 + block * 5):
        hold(seed, 3000)


def test_undisturbed_replicas_stay_in_sync_and_answer_each_batch() -> None:
    plan = undisturbed(topics=(TopicPlan(2, 3, 2),), delete_every_ms=1_000, groups=2)
    with simulated():
        world = ReplicationWorld(plan)
        world.start()
        world.run_for(10_000)
        world.calm_down()
        world.end()
    answers, validate = world.workload.data.line.answers, world.validator
    assert answers.keys() == {
        *("produce NONE", "fetch NONE", "delete NONE"),
        *("find NONE", "commit NONE", "resume NONE"),
    }
    assert validate.told >= answers["produce NONE"] + answers["commit NONE"] > 100
    assert min(answers["commit NONE"], answers["resume NONE"]) > 20
    assert validate.elections == validate.weak == world.lives.fences == 0
    assert all(len(told.image.isr) == 3 for told in validate.partitions.values())
    assert sum(one.read for one in world.workload.data.consumers) > 50
