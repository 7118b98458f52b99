"""Partitions move from two of four brokers to the others, written and read all the time.

Only real processes show that clients, the group's coordinator, the tiers and Kafka's own tool
continue with the brokers that a partition moves to, and what is left on the disks of those that it
left.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.controllers import Controller
from tests.support.quorum.moving import PUT_ASIDE, Replicas, going, reassign
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.reading import Lagging, Reading, until_read
from tests.support.quorum.replica_rounds import SETTINGS as REPLICATED
from tests.support.quorum.replica_rounds import Replicated, apart
from tests.support.quorum.serving import admin, brokers, until_true
from tests.support.quorum.tier_rounds import Traffic, until_acknowledged, validate_records
from tests.support.quorum.tiering import REPLICATED as METADATA_REPLICATED
from tests.support.quorum.tiering import TOPIC, Cluster, audited, tiers_apart

pytestmark = [pytest.mark.lasts(seconds=150), pytest.mark.patience(seconds=300)]

OLD, NEW = (11, 12), (13, 14)
PLAIN, TIERED = "plain", "tiered"
OFFSETS, REMOTE_METADATA = "__consumer_offsets", "__remote_log_metadata"
PARTITIONS = 2
PATIENCE_S = 120
SETTINGS = {"log.segment.delete.delay.ms": "100", "replica.lag.time.max.ms": "6000"}


@asynccontextmanager
async def four_brokers(
    directory: Path, settings: Mapping[str, str] = SETTINGS
) -> AsyncIterator[Cluster]:
    """A plain and a tiered topic have replicas on the first two of them."""
    async with tiers_apart(
        directory, broker_settings=settings, ids=(*OLD, *NEW), voters=1
    ) as cluster:
        assigned = [list(OLD), list(reversed(OLD))]
        tools = admin(cluster.servers)
        made = tools.create_topics(
            [
                NewTopic(name, PARTITIONS, replica_assignment=assigned, config=config)
                for name, config in {
                    PLAIN: {"min.insync.replicas": "2"},
                    TIERED: TOPIC | {"min.insync.replicas": "2"},
                }.items()
            ]
        )
        for one in made.values():
            await asyncio.to_thread(one.result, 30)
        await until_moved(cluster, {PLAIN: OLD, TIERED: OLD})
        yield cluster


def replicas(cluster: "Cluster | Replicated", topic: str) -> dict[int, tuple[list[int], list[int]]]:
    """Replicas and in-sync replicas of each partition."""
    found = admin(cluster.servers).list_topics(topic, timeout=10).topics[topic]
    return {one: (part.replicas, part.isrs) for one, part in found.partitions.items()}


async def until_moved(cluster: "Cluster | Replicated", wanted: Mapping[str, Iterable[int]]) -> None:
    """Wait until all partitions of these topics have these replicas, in sync."""

    def are() -> bool:
        return all(
            set(all_of) == set(isr) == set(ids)
            for topic, ids in wanted.items()
            for all_of, isr in replicas(cluster, topic).values()
        )

    await until_asked(are, f"the replicas are {wanted}", deadline_s=PATIENCE_S)


def everywhere(topics: Iterable[str], ids: Sequence[int] | None) -> dict[str, Replicas]:
    return {topic: dict.fromkeys(range(PARTITIONS), ids) for topic in topics}


def directories(node: Controller, *topics: str) -> list[str]:
    """Partition directories of a broker, also of those that are going or were put aside."""
    return sorted(path.name for topic in topics for path in node.logs.glob(f"{topic}-*"))


async def until_gone(cluster: Cluster, ids: Iterable[int], *topics: str) -> None:
    for one in ids:
        node = cluster.node(one)
        await until_true(
            lambda node=node: not directories(node, *topics),  # type: ignore[misc]
            f"{one} has nothing of {topics}",
        )


class Load:
    """A producer of each topic, a group that reads one, a reader of all of the other."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.plain = Traffic(cluster.servers, PLAIN, PARTITIONS, record_bytes=2_000)
        self.tiered = Traffic(cluster.servers, TIERED, PARTITIONS, record_bytes=20_000)
        self.group = Reading(cluster.servers, PLAIN)
        acknowledged, value_of = self.tiered.acknowledged, self.tiered.value_of
        self.lagging = Lagging(cluster.servers, TIERED, acknowledged, value_of)

    async def continues(self, when: str) -> None:
        for one in (self.plain, self.tiered):
            await until_acknowledged(one, one.least + 20, when)
        assert not self.group.wrong, self.group.wrong[:5]
        assert not self.lagging.wrong, self.lagging.wrong[:5]

    async def validate(self) -> None:
        """What was acknowledged is there once, and the group has read all of it."""
        for one in (self.plain, self.tiered):
            await asyncio.to_thread(one.stop)
        await until_read([self.plain.acknowledged], self.group)
        await self.stop()
        assert not self.lagging.wrong, self.lagging.wrong[:5]
        for topic, traffic in ((PLAIN, self.plain), (TIERED, self.tiered)):
            await validate_records(self.cluster.nodes[-1], traffic, topic)

    async def stop(self) -> None:
        for one in (self.plain, self.tiered, self.group, self.lagging):
            await asyncio.to_thread(one.stop)


async def until_tiered(cluster: Cluster) -> None:
    """Wait until each partition has lost the start of its log here, which is remote."""
    for index in range(PARTITIONS):
        for one in OLD:
            await until_asked(
                lambda one=one, index=index: (  # type: ignore[misc]
                    cluster.node(one).local_segments(TIERED, index)[0] > 50
                ),
                f"the log of {TIERED}-{index} on {one} begins above",
                deadline_s=PATIENCE_S,
            )


async def test_two_brokers_are_drained_and_stopped(tmp_path: Path) -> None:
    """Also what the group and the tiers keep moves."""
    async with four_brokers(tmp_path) as cluster:
        load = Load(cluster)
        try:
            await load.continues("before")
            await until_tiered(cluster)
            wanted: dict[str, Replicas] = dict(everywhere((PLAIN, TIERED), NEW))
            for topic in (OFFSETS, REMOTE_METADATA):
                there = await asyncio.to_thread(replicas, cluster, topic)
                wanted[topic] = {
                    index: [NEW[index % 2]]
                    for index, (ids, _) in there.items()
                    if set(ids) & set(OLD)
                }
            assert set(await asyncio.to_thread(reassign, cluster.servers, wanted)) == {0}
            await until_moved(cluster, {PLAIN: NEW, TIERED: NEW})
            await until_gone(cluster, OLD, PLAIN, TIERED, OFFSETS, REMOTE_METADATA)
            for one in NEW:
                for index in range(PARTITIONS):
                    begins = cluster.node(one).local_segments(TIERED, index)[0]
                    assert begins > 50, "it has copied what is remote"
            assert await asyncio.to_thread(going, cluster.servers) == {}
            await load.continues("after the move")
            for one in OLD:
                assert await cluster.node(one).stop() == 0
            await load.continues("without the old ones")
            await load.validate()
        finally:
            await load.stop()
        here = Cluster(cluster.quorum, [cluster.node(one) for one in NEW])
        await here.until_green()
        await audited(here.nodes[0], "--deep")


async def test_a_move_is_listed_cancelled_and_done_again(tmp_path: Path) -> None:
    """One of the new brokers is paused; later an old one is down while its replicas leave, and with
    it what it leads of the remote metadata: with one replica of these nobody could continue."""
    async with four_brokers(tmp_path, SETTINGS | METADATA_REPLICATED) as cluster:
        load = Load(cluster)
        try:
            await load.continues("before")
            lost = cluster.node(14)
            lost.pause()
            wanted = everywhere((PLAIN, TIERED), NEW)
            here = Cluster(cluster.quorum, [one for one in cluster.nodes if one is not lost])
            assert set(await asyncio.to_thread(reassign, here.servers, wanted)) == {0}
            await until_asked(
                lambda: {13 in isr for _, isr in replicas(here, PLAIN).values()} == {True},
                "one of them is in sync",
                deadline_s=PATIENCE_S,
            )
            listed = await asyncio.to_thread(going, here.servers)
            assert listed == {
                (topic, index): (list(NEW), list(OLD))
                for topic in (PLAIN, TIERED)
                for index in range(PARTITIONS)
            }
            await load.continues("while it is moved")
            none = everywhere((PLAIN, TIERED), None)
            assert set(await asyncio.to_thread(reassign, here.servers, none)) == {0}
            assert await asyncio.to_thread(going, here.servers) == {}
            assert set(await asyncio.to_thread(reassign, here.servers, none)) == {85}
            await until_moved(here, {PLAIN: OLD, TIERED: OLD})
            lost.resume()
            await cluster.until_all_serve()
            await until_gone(cluster, NEW, PLAIN, TIERED)
            await load.continues("after it was cancelled")

            down = cluster.node(12)
            down.kill()
            here = Cluster(cluster.quorum, [one for one in cluster.nodes if one is not down])
            assert set(await asyncio.to_thread(reassign, here.servers, wanted)) == {0}
            await until_moved(here, {PLAIN: NEW, TIERED: NEW})
            await until_gone(cluster, (11,), PLAIN, TIERED)
            await down.start()
            await cluster.until_all_serve()
            await until_true(
                lambda: (
                    {re.sub(r"\.\w+", "", one) for one in directories(down, PLAIN, TIERED)}
                    == {f"{topic}-{index}-stray" for topic in (PLAIN, TIERED) for index in (0, 1)}
                ),
                f"what left while it was down is aside: {directories(down, PLAIN, TIERED)}",
            )
            assert PUT_ASIDE in str(down.health())
            back = everywhere((PLAIN, TIERED), (12, 13))
            assert set(await asyncio.to_thread(reassign, cluster.servers, back)) == {0}
            await until_moved(cluster, {PLAIN: (12, 13), TIERED: (12, 13)})
            await until_gone(cluster, (11, 14), PLAIN, TIERED)
            await load.continues("with one that is back")
            await load.validate()
        finally:
            await load.stop()


@pytest.mark.jvm
async def test_kafkas_tool_moves_partitions(tmp_path: Path) -> None:
    """As operators use it: generate, execute with a throttle, list, verify, cancel.

    The new broker serves, and cannot fetch until the first plan is cancelled.
    """
    require_kafka_tools()
    async with apart(tmp_path, REPLICATED | SETTINGS, voters=1) as cluster:
        for node in cluster.nodes:
            await until_true(lambda at=node.address: brokers(at) == {11, 12, 13}, "all serve")  # type: ignore[misc]
        tools = admin(cluster.servers)
        made = tools.create_topics([NewTopic(PLAIN, PARTITIONS, replica_assignment=[[11, 12]] * 2)])
        await asyncio.to_thread(made[PLAIN].result, 30)
        traffic = Traffic(cluster.servers, PLAIN, PARTITIONS, record_bytes=2_000)
        topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
        topics.write_text(json.dumps({"version": 1, "topics": [{"topic": PLAIN}]}))

        async def tool(*arguments: str) -> str:
            server = ("--bootstrap-server", cluster.servers)
            return await asyncio.to_thread(kafka_tool, "reassign-partitions", *server, *arguments)

        of_plan = ("--reassignment-json-file", str(plan))
        throttled = ("--execute", "--throttle", "50000000")
        names = f"{PLAIN}-0,{PLAIN}-1"
        try:
            await until_acknowledged(traffic, 20, "before")
            said = await tool(
                "--topics-to-move-json-file", str(topics), "--broker-list", "12,13", "--generate"
            )
            now, proposed = (json.loads(one) for one in said.splitlines() if one[:1] == "{")
            assert [one["replicas"] for one in now["partitions"]] == [[11, 12]] * 2
            assert [sorted(one["replicas"]) for one in proposed["partitions"]] == [[12, 13]] * 2
            plan.write_text(json.dumps(proposed))

            links = [(13, 11), (13, 12)]
            cluster.links.cut(links)
            said = await tool(*of_plan, *throttled)
            assert f"Successfully started partition reassignments for {names}" in said
            assert "The inter-broker throttle limit was set to 50000000 B/s" in said
            said = await tool("--list")
            assert said.count("adding: 13. removing: 11.") == PARTITIONS, said
            said = await tool(*of_plan, "--verify")
            assert said.count("is still in progress.") == PARTITIONS, said
            said = await tool(*of_plan, "--cancel")
            assert f"Successfully cancelled partition reassignments for: {names}" in said
            cluster.links.heal()

            await tool(*of_plan, *throttled)
            await until_moved(cluster, {PLAIN: (12, 13)})
            said = await tool(*of_plan, "--verify")
            assert said.count("is completed.") == PARTITIONS, said
            assert "Clearing broker-level throttles on brokers 11,12,13" in said
            assert f"Clearing topic-level throttles on topic {PLAIN}" in said
            assert "No partition reassignments found." in await tool("--list")
            (old,) = (one for one in cluster.nodes if one.node_id == 11)
            await until_true(lambda: not directories(old, PLAIN), "the old broker has nothing")
            await until_acknowledged(traffic, traffic.least + 20, "after the move")
        finally:
            await asyncio.to_thread(traffic.stop)
        await validate_records(SimpleNamespace(bootstrap=cluster.servers), traffic, PLAIN)
