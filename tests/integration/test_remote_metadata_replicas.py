"""The metadata topic of the tiers with several replicas: made late, grown later, and led elsewhere.

Only real processes show that tiers find the next leader of their topic by the tier listeners.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.brokers.clients import produce, read_all
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until_asked
from tests.support.quorum.serving import admin, until_true
from tests.support.quorum.tiering import (
    REPLICATED,
    SWITCH,
    Cluster,
    TieringBroker,
    audited,
    tiers_apart,
    tiers_combined,
)

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=240)]

METADATA = "__remote_log_metadata"
RECORDS = [(b"%d" % n, (b"%d " % n) * 200) for n in range(6_000)]
AS_READ = [(n, key, value) for n, (key, value) in enumerate(RECORDS)]


def replicas(address: str) -> list[tuple[set[int], set[int]]]:
    """Replicas and ISR of each partition of the metadata topic."""
    found = admin(address).list_topics(METADATA, timeout=10).topics[METADATA]
    return [(set(one.replicas), set(one.isrs)) for one in found.partitions.values()]


async def fill(cluster: Cluster, topic: str, *, without: int = -1) -> dict[int, int]:
    """A topic with a partition for each broker: copied, and local no more."""
    led = await cluster.create(topic, len(cluster.nodes) - (without >= 0))
    for partition, leader in led.items():
        await asyncio.to_thread(
            produce, cluster.node(leader), topic, RECORDS, partition, **{"enable.idempotence": True}
        )
    await cluster.until_only_active_is_local(topic, led)
    return led


async def test_tiers_continue_while_a_broker_with_their_metadata_is_away(tmp_path: Path) -> None:
    async with tiers_combined(tmp_path) as cluster:
        assert [one for one, _ in replicas(cluster.nodes[0].address)] == [cluster.ids] * 4
        led = await fill(cluster, "before")
        gone, here = cluster.nodes[2], cluster.nodes[0]
        gone.kill()
        await until_true(
            lambda: all(isr == cluster.ids - {gone.node_id} for _, isr in replicas(here.address)),
            "it has left",
        )
        meanwhile = await fill(cluster, "meanwhile", without=gone.node_id)
        for partition in meanwhile:
            assert await asyncio.to_thread(read_all, here, "meanwhile", partition) == AS_READ
        await gone.start()
        await until_true(
            lambda: all(isr == cluster.ids for _, isr in replicas(here.address)), "it is in sync"
        )
        for partition in led:
            assert await asyncio.to_thread(read_all, gone, "before", partition) == AS_READ
        await cluster.until_green()
        await audited(here)


async def test_the_topic_of_one_replica_grows_while_tiers_work(tmp_path: Path) -> None:
    async with tiers_apart(tmp_path) as cluster:
        one, other = cluster.nodes
        assert all(len(found) == 1 for found, _ in replicas(one.address))
        led = await fill(cluster, "t")
        command = [
            sys.executable, "-m", "tidemark.cli", "remote", "replicate-metadata", "--factor", "2",
            "--bootstrap-server", cluster.servers,
        ]  # fmt: skip
        for error_text in ("4 partition(s) get 2 replicas", "have 2 replicas or more already"):
            code, said = await run_to_end(command)
            assert (code, error_text in said) == (0, True), said
        assert replicas(one.address) == [(cluster.ids, cluster.ids)] * 4
        other.kill()
        for partition in (each for each, leader in led.items() if leader == one.node_id):
            assert await asyncio.to_thread(read_all, one, "t", partition) == AS_READ
        await other.start()
        await cluster.until_green()
        await audited(one)


async def test_a_broker_serves_before_its_tiers_topic_can_be_made(tmp_path: Path) -> None:
    settings = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
    plan = Plan(TidemarkController, is_dynamic=False, settings=settings | SWITCH)
    async with Quorum(tmp_path, plan) as quorum:
        nodes = [
            TieringBroker(one, tmp_path / f"broker-{one}", quorum.membership, settings=REPLICATED)
            for one in (11, 12, 13)
        ]
        await nodes[0].format("--cluster-secret")
        try:
            for node in nodes[:2]:
                await node.start()
                await until_asked(
                    lambda node=node: (  # type: ignore[misc]
                        node.health()["status"] == "yellow"
                        and "topic.replication.factor=3, and" in node.page("health")
                    ),
                    "its tier waits, and it says why",
                    deadline_s=30,
                )
            cluster = Cluster(quorum, nodes)
            tools = admin(nodes[0].address)
            assert METADATA not in tools.list_topics(timeout=10).topics
            assert await nodes[1].stop() == 0  # also while it waits
            await nodes[1].start()
            await nodes[2].start()
            await cluster.until_all_serve()
            await until_true(
                lambda: METADATA in tools.list_topics(timeout=10).topics, "the topic is made"
            )
            await fill(cluster, "t")
            await cluster.until_green()
        finally:
            for node in nodes:
                node.close()
                print(f"--- node {node.node_id}\n{node.log_tail(60)}")
