"""Tiered topics with replicas on simulated clusters: each broker has a tier, all share a store.

make simulate WORLD=replication SEEDS=300-399 EVENTS=2000    # many seeds
"""

import pytest

from tests.simulation.test_replication import hold
from tests.support.quorum_world.world import simulated
from tests.support.replication_world.plan import TierPlan, TopicPlan, undisturbed
from tests.support.replication_world.world import ReplicationWorld

pytestmark = pytest.mark.lasts(seconds=60)

EVENTS = 2000


@pytest.mark.parametrize("seed", [302, 315])
def test_every_rule_holds_with_tiers(seed: int) -> None:
    """In both segments are deleted remotely, and tiers are killed."""
    hold(seed, EVENTS)


def test_undisturbed_tiers_copy_and_every_replica_expires_locally() -> None:
    plan = undisturbed(topics=(TopicPlan(1, 3, 2),), tier=TierPlan(partitions=2))
    with simulated():
        world = ReplicationWorld(plan)
        world.start()
        world.run_for(10_000)
        world.calm_down()
        world.end()
    validate = world.tier_validator
    assert validate.copied > 10
    assert validate.deleted == 0
    tiered = [told for told in world.validator.partitions.values() if told.is_tiered]
    assert len(tiered) == 2
    for told in tiered:
        assert min(copy.start for copy in told.copies.values()) > 0
        assert all(told.end - copy.start < 20 for copy in told.copies.values())


def test_an_undisturbed_move_copies_the_local_tail_alone() -> None:
    plan = undisturbed(observers=(101, 102, 103, 104), topics=(), tier=TierPlan())
    with simulated():
        world = ReplicationWorld(plan)
        world.start()
        world.run_for(10_000)
        (told,) = world.validator.partitions.values()
        (other,) = {*plan.observers} - {*told.image.replicas}
        first, *kept = told.image.replicas
        wanted = (*kept, other)
        world.workload.data.mover.ask(told, wanted)
        world.run_for(5_000)
        world.calm_down()
        world.end()
    rules = world.move_rules
    assert told.image.replicas == wanted
    assert (rules.begun, rules.finished, rules.cancelled) == (1, 1, 0)
    assert rules.begun_above == rules.gone == 1
    assert not told.copies[first].has_files
    assert told.copies[other].batches[0].base > 100
