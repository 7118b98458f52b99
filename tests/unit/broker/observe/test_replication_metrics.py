"""What a leader counts of its followers, and what its health says."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.observe.health import Health
from broker.observe.replication_metrics import register_leading
from metadata_topic.image.image import ELR_VERSION
from runtime.metrics import Registry
from tests.support.worlds.data_plane import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _page(metrics: Registry) -> dict[str, str]:
    text = b"".join(metrics.pieces()).decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("kafka_server_ReplicaManager_"): value for name, _, value in lines}


@pytest.mark.parametrize(
    ("isr", "under", "at_min", "under_min"),
    [((1, 2, 3), 0, 0, 0), ((1, 2), 1, 1, 0), ((1,), 1, 0, 1)],
)
def test_partitions_that_lack_replicas_are_counted_and_named(
    world: World, isr: tuple[int, ...], under: int, at_min: int, under_min: int
) -> None:
    metrics, health = Registry(), Health(1)
    register_leading(metrics, health, world.leading)
    world.add_topic("t", min_insync_replicas=2)
    world.add_topic("alone")
    world.change("t", replicas=(1, 2, 3), isr=isr, leader_epoch=4)
    page = _page(metrics)
    assert float(page["UnderReplicatedPartitions"]) == under
    assert float(page["AtMinIsrPartitionCount"]) == at_min
    assert float(page["UnderMinIsrPartitionCount"]) == under_min
    red, yellow = health.checks["replicas"](), health.warnings["replicas"]()
    assert (len(red), len(yellow)) == (under_min, under - under_min)
    assert all("t-0" in line for line in (*red, *yellow))


def test_replicas_without_eligible_leader_replicas_are_yellow(world: World) -> None:
    health = Health(1)
    register_leading(Registry(), health, world.leading)
    world.add_topic("t")
    warning = health.warnings["features"]
    assert warning() == ()
    world.change("t", replicas=(1, 2), isr=(1, 2), leader_epoch=4)
    (line,) = warning()
    assert line.startswith("eligible.leader.replicas.version is not finalised, and 1 partition(s)")
    assert "`tidemark features upgrade`" in line
    world.image = replace(world.image, features={ELR_VERSION: 1})
    assert warning() == ()


def test_an_isr_that_was_asked_for_is_counted_and_no_other(world: World) -> None:
    metrics = Registry()
    register_leading(metrics, Health(1), world.leading)
    world.add_topic("t")
    world.change("t", replicas=(1, 2, 3), isr=(1, 2, 3), leader_epoch=4)
    followers = world.replicas.require("t", 0).followers
    assert followers is not None
    for isr in ((1, 2), (1,), (1, 3)):
        followers.in_sync._propose(isr)
        world.change("t", isr=isr)
    world.change("t", isr=(1,))  # by the controller itself
    page = _page(metrics)
    assert float(page["IsrShrinksPerSec_total"]) == 2
    assert float(page["IsrExpandsPerSec_total"]) == 1
