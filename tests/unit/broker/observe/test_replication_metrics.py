"""What a leader counts of its followers, and what its health says."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from broker.observe.health import Health
from broker.observe.replication_metrics import register_leading
from local_log.config import LogConfig
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
    [((1, 2, 3), 0, 1, 0), ((1, 2), 1, 2, 0), ((1,), 1, 1, 1)],
)
def test_partitions_that_lack_replicas_are_counted_and_named(
    world: World, isr: tuple[int, ...], under: int, at_min: int, under_min: int
) -> None:
    metrics, health = Registry(), Health(1)
    register_leading(metrics, health, world.leading)
    world.add_topic("t", min_insync_replicas=2)
    world.add_topic("alone", min_insync_replicas=2)  # a lone replica is enough, as in Kafka
    world.change("t", replicas=(1, 2, 3), isr=isr, leader_epoch=4)
    page = _page(metrics)
    assert float(page["UnderReplicatedPartitions"]) == under
    assert float(page["AtMinIsrPartitionCount"]) == at_min
    assert float(page["UnderMinIsrPartitionCount"]) == under_min
    unhealthy, yellow = health.checks["replicas"](), health.warnings["replicas"]()
    assert (len(unhealthy), len(yellow)) == (under_min, under)
    assert all("t-0" in line for line in (*unhealthy, *yellow))


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
    followers.in_sync._propose((1, 2))
    world.change("t", isr=(1, 3))  # it has decided otherwise
    page = _page(metrics)
    assert float(page["IsrShrinksPerSec_total"]) == 2
    assert float(page["IsrExpandsPerSec_total"]) == 1


def test_a_reassignment_is_counted_while_it_runs_and_warns_of_nothing(world: World) -> None:
    metrics, health = Registry(), Health(1)
    register_leading(metrics, health, world.leading)
    world.add_topic("t")
    world.change("t", replicas=(1, 2), adding=(2,))
    page = _page(metrics)
    assert float(page["ReassigningPartitions"]) == 1
    assert float(page["UnderReplicatedPartitions"]) == 0
    assert health.warnings["replicas"]() == ()
    world.change("t", isr=(1, 2), adding=())
    assert float(_page(metrics)["ReassigningPartitions"]) == 0


def test_a_lone_replica_is_at_its_minimum_as_long_as_it_is_led_here(world: World) -> None:
    metrics = Registry()
    register_leading(metrics, Health(1), world.leading)
    world.add_topic("t", 3)
    assert float(_page(metrics)["AtMinIsrPartitionCount"]) == 3
    world.change("t", 0, replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=4)
    world.change("t", 1, replicas=(1, 2), isr=(1, 2))
    assert float(_page(metrics)["AtMinIsrPartitionCount"]) == 1
    del world.topics["t"]
    world.apply()
    assert float(_page(metrics)["AtMinIsrPartitionCount"]) == 0


def test_nothing_is_counted_of_what_is_led_no_more_or_lacks_no_more(world: World) -> None:
    health = Health(1)
    register_leading(Registry(), health, world.leading)
    world.add_topic("t", 3, min_insync_replicas=2)
    for index in range(3):
        world.change("t", index, replicas=(1, 2, 3), isr=(1,), leader_epoch=4)
    (unhealthy,) = health.checks["replicas"]()
    assert unhealthy.startswith("3 partition(s)")
    world.change("t", 0, isr=(1, 2, 3))
    world.change("t", 1, leader=2, leader_epoch=5)
    (unhealthy,) = health.checks["replicas"]()
    assert unhealthy.startswith("1 partition(s)")
    world.replicas.require("t", 2).set_config(LogConfig())
    assert not health.checks["replicas"]()
    assert len(health.warnings["replicas"]()) == 1
    del world.topics["t"]
    world.apply()
    assert not any(world.leading.lacking.values())


def test_what_is_shown_looks_at_no_partition_that_it_does_not_name(world: World) -> None:
    metrics, health = Registry(), Health(1)
    register_leading(metrics, health, world.leading)
    world.add_topic("t", 30, min_insync_replicas=2)
    for index in range(30):
        world.change("t", index, replicas=(1, 2, 3), isr=(1,), leader_epoch=4)
    world.leading.led = Unlooked(world.leading.led)
    (unhealthy,) = health.checks["replicas"]()
    assert "t-0, t-1, t-2 and 27 more" in unhealthy
    assert float(_page(metrics)["UnderReplicatedPartitions"]) == 30


class Unlooked(dict[Any, None]):
    """What is led, which nobody may walk over."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("it is walked over")
