"""What the page shows is what the parts of a broker say: replicas, groups, quorum, totals."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.config.broker_config import BrokerConfig
from broker.observe.console.facts import CommittedFacts, PartitionFacts, TierFacts
from broker.observe.health import Health
from broker.observe.http import pages
from broker.process.broker_source import BrokerSource
from broker.process.console import ConsoleWiring, NodeSource, broker_counters, console_url
from broker.replica.topic_metrics import TopicMetrics
from broker.replica.validation import Validation
from kafka_protocol.types import TopicPartition
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage, Endpoint, RemoteStore
from metadata_topic.image.sorted_map import SortedMap
from metadata_topic.quorum.view import QuorumView, ReplicaProgress
from metadata_topic.raft.voters import ReplicaKey
from rlm.link.messages import Loss
from runtime.metrics import Registry
from tests.support.coordinator.served import ServedGroups
from tests.support.samples.config import load_entries
from tests.support.sim.ports import simulated
from tests.support.worlds.data_plane import World


class ScriptedTier:
    """Says what a tier process would say of itself."""

    def __init__(self) -> None:
        self.unhealthy: dict[tuple[bytes, int], str] = {}
        self.totals = {"remote_copy_bytes": 7.0}

    def unhealthy_partitions(self) -> dict[tuple[bytes, int], str]:
        return self.unhealthy

    def state(self) -> Any:
        return SimpleNamespace(process="up", pid=None, restarts=2, assigned=5, ready=4)


class ScriptedNode:
    """A node of a metadata quorum that says what it is given."""

    def __init__(self, view: QuorumView, *brokers: BrokerImage) -> None:
        self._view = view
        self.image = MetadataImage(brokers=SortedMap.of({one.id: one for one in brokers}))

    def describe(self) -> QuorumView:
        return self._view


def source_of(world: World, tier: ScriptedTier | None = None, groups: Any = None) -> BrokerSource:
    node: Any = ScriptedNode(QuorumView(epoch=0))
    coordinator = groups or SimpleNamespace(shards={})
    return BrokerSource(node, world.replicas, coordinator, tier)  # type: ignore[arg-type]


def one(world: World, tier: ScriptedTier | None = None) -> PartitionFacts:
    [found] = source_of(world, tier).partitions()
    return found


async def test_a_partition_is_shown_with_its_ends(tmp_path: Path) -> None:
    world = World(tmp_path, has_tier=True)
    world.add_topic("t", remote_storage_enable=True)
    world.append("t", b"a", b"b", b"c")
    log = world.replicas.partitions[TopicPartition("t", 0)].log
    found = one(world)
    assert (found.log_start, found.local_start, found.log_end, found.copied_end) == (0, 0, 3, -1)
    assert (found.is_led, found.leader, found.replicas, found.isr) == (True, 1, 1, 1)
    assert (found.is_tiered, found.is_internal, found.size_bytes) == (True, False, log.size_bytes)
    assert log.set_copied_through(1, 3)
    assert one(world).copied_end == 2
    assert source_of(world).committed_end("t", 0) == found.committed_end == log.high_watermark
    assert source_of(world).committed_end("t", 1) == -1


async def test_an_end_that_a_replica_may_not_know_is_not_said(tmp_path: Path) -> None:
    """A follower that is not in sync stands still, and so would the lag of groups."""
    world = World(tmp_path)
    world.add_topic("t")
    partition = world.replicas.partitions[TopicPartition("t", 0)]
    partition.become_follower(
        leader_id=2, leader_epoch=9, partition_epoch=9, replicas=(1, 2), isr=(1, 2)
    )
    assert source_of(world).committed_end("t", 0) == 0
    partition.isr = (2,)
    assert source_of(world).committed_end("t", 0) == -1
    partition.isr = (1, 2)
    partition.log.set_offline(OSError("gone"))
    assert source_of(world).committed_end("t", 0) == -1


async def test_what_is_wrong_with_a_partition_is_said(tmp_path: Path) -> None:
    world, tier = World(tmp_path, has_tier=True), ScriptedTier()
    topic_id = world.add_topic("t", remote_storage_enable=True)
    partition = world.replicas.partitions[TopicPartition("t", 0)]
    assert one(world, tier).problem == ""
    partition.isr, partition.replicas = (1,), (1, 2, 3)
    assert one(world, tier).problem == "2 of its replicas are not in sync"
    partition.isr = (1, 2)
    assert one(world, tier).problem == "1 of its replicas is not in sync"
    partition.verdict = Loss.HOLE
    assert one(world, tier).problem == "hole"
    tier.unhealthy[topic_id, 0] = "a hole, and the remedy"
    assert one(world, tier).problem == "a hole, and the remedy"
    partition.log.set_offline(OSError("gone"))
    found = one(world, tier)
    assert (found.problem, found.is_led, found.leader) == ("offline: its disk failed", False, -1)
    partition.verdict = Validation.OPEN


async def test_a_partition_that_is_not_hosted_for_its_disk_is_shown(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add_topic("t")
    world.replicas.offline[TopicPartition("gone", 4)] = "no disk"
    world.replicas.offline[TopicPartition("t", 0)] = "is hosted again"
    found = {(each.topic, each.partition): each for each in source_of(world).partitions()}
    assert found.keys() == {("gone", 4), ("t", 0)}
    assert found["gone", 4].problem == "offline: no disk"
    assert found["gone", 4].log_end == -1


async def test_groups_and_their_offsets_are_shown(tmp_path: Path) -> None:
    groups = ServedGroups(tmp_path)
    groups.commit(7, group="g", partition=1)
    groups.commit(9, group="h", partition=2)
    source = source_of(groups.world, groups=groups.coordinator)
    assert sorted(source.committed()) == [
        CommittedFacts("g", "t", 1, 7),
        CommittedFacts("h", "t", 2, 9),
    ]
    assert sorted((found.group_id, found.offsets) for found in source.groups()) == [
        ("g", 1),
        ("h", 1),
    ]
    joining = groups.join(group="m")
    await asyncio.sleep(0)
    [found] = [one for one in source.groups() if one.group_id == "m"]
    assert (found.members, found.offsets) == (1, 0)
    joining.cancel()


async def test_offsets_that_are_committed_while_they_are_walked_do_no_harm(tmp_path: Path) -> None:
    groups = ServedGroups(tmp_path)
    for group in ("a", "b"):
        groups.commit(1, group=group)
    walked = source_of(groups.world, groups=groups.coordinator).committed()
    found = [next(walked)]
    for group in ("a", "b", "c"):
        for partition in range(3):
            groups.commit(2, group=group, partition=partition)
    found += list(walked)
    assert {each.group_id for each in found} == {"a", "b"}


async def test_the_tier_process_is_shown(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert source_of(world).tier() is None
    assert source_of(world, ScriptedTier()).tier() == TierFacts("up", -1, 2, 5, 4)


def test_brokers_and_quorum_are_shown() -> None:
    voters = tuple(ReplicaProgress(ReplicaKey(n), end) for n, end in ((1, 90), (2, 80), (3, -1)))
    observers = (ReplicaProgress(ReplicaKey(11), 70),)
    view = QuorumView(
        epoch=4,
        leader_id=1,
        is_leader=True,
        high_watermark=85,
        voters=voters,
        observers=observers,
    )
    store = RemoteStore("class", "place")
    node: Any = ScriptedNode(
        view,
        BrokerImage(11, 5, b"i" * 16, (Endpoint("PLAINTEXT", "h", 9092),), rack="r", fenced=False),
        BrokerImage(12, 6, b"j" * 16, remote_store=store, in_controlled_shutdown=True),
    )
    first, second = NodeSource(node).brokers()
    assert (first.id, first.endpoints, first.rack) == (11, ["h:9092"], "r")
    assert (first.fenced, first.has_tier, second.fenced, second.has_tier) == (
        False,
        False,
        True,
        True,
    )
    assert second.in_controlled_shutdown
    found = NodeSource(node).quorum()
    assert found is not None
    assert [(each.id, each.log_end, each.behind) for each in found.voters] == [
        (1, 90, 0),
        (2, 80, 10),
        (3, -1, -1),
    ]
    assert [(each.id, each.behind) for each in found.observers] == [(11, 20)]
    assert (found.epoch, found.leader_id, found.high_watermark) == (4, 1, 85)


def wiring() -> tuple[ConsoleWiring, Any]:
    ports = simulated()
    config: BrokerConfig = load_entries({})
    return ConsoleWiring(config, Health(1), ports), ports


def test_totals_are_sampled_every_five_seconds_until_the_end() -> None:
    console, ports = wiring()
    metrics = TopicMetrics(ports.metrics)
    metrics.of("t").bytes_in.inc(100)
    tier = ScriptedTier()
    console.show(NodeSource(None), lambda: tier.totals)  # type: ignore[arg-type]
    console.respond_or(pages({}), "127.0.0.1")
    end = console.begin()
    history = console._states.history
    ports.scheduler.advance(0)
    metrics.of("u").bytes_in.inc(1_000)
    metrics.forget("t")
    tier.totals["remote_copy_bytes"] = 9
    ports.scheduler.advance(5_000)
    assert history.rates()["bytes_in"] == [200]
    assert history.increases()["remote_copy_bytes"] == 2
    end()
    metrics.of("u").bytes_in.inc(1_000)
    ports.scheduler.advance(20_000)
    assert history.rates()["bytes_in"] == [200]


def test_no_sums_are_made_for_a_page_that_is_off() -> None:
    console, ports = wiring()
    TopicMetrics(ports.metrics)
    console.respond_or(pages({}), "0.0.0.0")
    end = console.begin()
    ports.scheduler.advance(20_000)
    assert console._states.history.rates()["bytes_in"] == []
    end()


@pytest.mark.parametrize("is_registered", [True, False])
def test_totals_of_counters_that_are_not_there_are_left_out(is_registered: bool) -> None:
    metrics = Registry()
    if is_registered:
        TopicMetrics(metrics)
    found = broker_counters(metrics)
    assert ("bytes_in" in found) is is_registered
    assert "remote_fetch_bytes" not in found


@pytest.mark.parametrize(
    ("address", "enable", "url"),
    [
        (("127.0.0.1", 9464), None, "http://127.0.0.1:9464/"),
        (("::1", 1), None, "http://[::1]:1/"),
        (("127.0.0.1", 9464), "false", ""),
        (("h1", 9464), None, ""),
        (("h1", 9464), "true", "http://h1:9464/"),
        (("0.0.0.0", 9464), "true", "http://127.0.0.1:9464/"),
        (("", 9464), "true", "http://127.0.0.1:9464/"),
        (("::", 9464), "true", "http://[::1]:9464/"),
        (None, "true", ""),
    ],
)
def test_where_the_page_is(address: tuple[str, int] | None, enable: str | None, url: str) -> None:
    settings = {} if enable is None else {"tidemark.console.enable": enable}
    assert console_url(load_entries(settings), address) == url
