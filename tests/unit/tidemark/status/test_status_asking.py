"""Nodes of a cluster are asked side by side, and meanwhile one for partitions, page by page."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from runtime.clock import SystemClock
from tests.support.kafka_client.node import Node, framed, serving
from tests.support.sim.clock import ManualClock
from tidemark.quorum.client_settings import ClientSettings
from tidemark.status.asking import StatusAsker
from tidemark.status.facts import PAGE_KEY, ClusterFacts, Page

PARTITIONS = ApiKey.DESCRIBE_TOPIC_PARTITIONS
APIS = {ApiKey.DESCRIBE_CLUSTER: (0, 2), ApiKey.DESCRIBE_CONFIGS: (4, 4), PARTITIONS: (0, 0)}
Partition = response(PARTITIONS).cls.Topics.Partitions
NODES = 5


def encoded(key: ApiKey, version: int, number: int, **fields: Any) -> bytes:
    codec = response(key)
    return framed(number.to_bytes(4, "big") + b"\0" + codec.encode(codec.cls(**fields), version))


class Cluster:
    """A bootstrap broker, and brokers each of which answers when all have been asked.

    Attributes:
        brokers: that the bootstrap broker names.
        fenced: ids of those of them that are.
        names_itself: the bootstrap broker is one of them.
        pages: of partitions, in their order; none left: it hangs up, and the time of a clock that
            stands still ends.
    """

    def __init__(self) -> None:
        self.brokers: list[tuple[Node, int]] = []
        self.fenced: set[int] = set()
        self.names_itself = False
        self.pages: list[dict[str, Any]] = []
        self.clock: SystemClock | ManualClock = SystemClock()
        self._settings, self._health = (asyncio.Barrier(n) for n in (NODES + 1, NODES))

    async def named(self, key: int, version: int, number: int) -> bytes:
        """What the bootstrap broker answers."""
        if key == PARTITIONS:
            if len(self.brokers) == NODES:
                await self._settings.wait()
            return self._page(version, number)
        if key == ApiKey.DESCRIBE_CONFIGS:
            return b""
        broker = response(ApiKey.DESCRIBE_CLUSTER).cls.Brokers
        brokers = [
            broker(
                broker_id=node_id,
                host="127.0.0.1",
                port=node.port,
                is_fenced=node_id in self.fenced,
            )
            for node_id, (node, _) in enumerate(self.brokers)
        ]
        return encoded(ApiKey.DESCRIBE_CLUSTER, version, number, cluster_id="c", brokers=brokers)

    def _page(self, version: int, number: int) -> bytes:
        if self.pages:
            return encoded(PARTITIONS, version, number, **self.pages.pop(0))
        if isinstance(self.clock, ManualClock):
            self.clock.advance(ClientSettings().api_timeout_ms)
        return b""

    @asynccontextmanager
    async def broker(self, node_id: int) -> AsyncIterator[None]:
        """One that shows its settings when all are asked, one for partitions; likewise its page."""

        async def settings(key: int, version: int, number: int) -> bytes:
            assert key == ApiKey.DESCRIBE_CONFIGS
            await self._settings.wait()
            result = response(ApiKey.DESCRIBE_CONFIGS).cls.Results
            config = result.Configs(name=PAGE_KEY, value=f"127.0.0.1:{port}")
            results = [result(configs=[config])]
            return encoded(ApiKey.DESCRIBE_CONFIGS, version, number, results=results)

        async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await self._health.wait()
            body = b'{"node_id": %d, "status": "green", "stage": "running", "reasons": []}'
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body % node_id)
            writer.close()

        pages = await asyncio.start_server(page, "127.0.0.1", 0)
        port = pages.sockets[0].getsockname()[1]
        async with pages, serving(settings, APIS) as node:
            self.brokers.append((node, port))
            yield

    async def asked(self) -> ClusterFacts:
        """What `tidemark status` finds."""
        async with serving(self.named, APIS) as first:
            if self.names_itself:
                self.brokers.append((first, 0))
            servers = f"127.0.0.1:{first.port}"
            asker = StatusAsker(servers, None, ClientSettings(), self.clock)
            return await asyncio.to_thread(asker.ask)


async def test_nodes_and_their_pages_are_asked_side_by_side() -> None:
    """Silent ones would take the time of the others, which then look silent, too."""
    cluster = Cluster()
    cluster.pages = [{}]
    async with AsyncExitStack() as stack:
        for node_id in range(NODES):
            await stack.enter_async_context(cluster.broker(node_id))
        facts = await cluster.asked()
    assert facts.brokers is not None
    assert [one.silence for one in facts.brokers.values()] == [""] * NODES
    assert [one.page for one in facts.brokers.values()] == [Page("green", "running")] * NODES
    assert facts.partition_count == 0


def some(topic: str, *leaders: int) -> Any:
    partitions = [
        Partition(partition_index=index, leader_id=leader) for index, leader in enumerate(leaders)
    ]
    return response(PARTITIONS).cls.Topics(name=topic, partitions=partitions)


async def test_partitions_are_counted_page_by_page() -> None:
    cluster = Cluster()
    cursor = response(PARTITIONS).cls.NextCursor(topic_name="b", partition_index=0)
    cluster.pages = [
        {"topics": [some("a", 1, -1)], "next_cursor": cursor},
        {"topics": [some("b", -1)]},
    ]
    facts = await cluster.asked()
    assert (facts.partition_count, facts.offline) == (3, ["a-1", "b-0"])
    assert facts.topics == {"a": 2, "b": 1}
    assert facts.partition_silence == ""


async def test_a_page_of_partitions_that_is_missing_is_told() -> None:
    cluster = Cluster()
    cursor = response(PARTITIONS).cls.NextCursor(topic_name="b", partition_index=0)
    cluster.pages = [{"topics": [some("a", 1, -1)], "next_cursor": cursor}]
    facts = await cluster.asked()
    assert (facts.partition_count, facts.offline) == (None, ["a-1"])
    assert facts.partition_silence.startswith("after 2 of them: 127.0.0.1:")


async def test_another_broker_continues_where_one_falls_silent() -> None:
    """The first one hangs up after a page; what it has said is not counted twice."""
    cluster, asked = Cluster(), []
    cursor = response(PARTITIONS).cls.NextCursor(topic_name="b", partition_index=0)
    cluster.pages = [{"topics": [some("a", 1, -1)], "next_cursor": cursor}]

    def second(key: int, version: int, number: int) -> bytes:
        asked.append(key)
        if key != PARTITIONS:
            return b""
        return encoded(PARTITIONS, version, number, topics=[some("b", -1)])

    async with serving(second, APIS) as node:
        cluster.brokers.append((node, 0))
        facts = await cluster.asked()
    assert PARTITIONS in asked
    assert (facts.partition_count, facts.offline) == (3, ["a-1", "b-0"])
    assert facts.partition_silence == ""


async def test_a_broker_that_fell_silent_is_not_asked_for_partitions_again() -> None:
    cluster = Cluster()
    cluster.names_itself = True
    facts = await cluster.asked()
    assert facts.partition_silence.count("127.0.0.1:") == 1


async def test_a_fenced_broker_is_not_asked_for_partitions() -> None:
    """What it knows of them may be old."""
    cluster, asked = Cluster(), list[int]()

    def second(key: int, *_: int) -> bytes:
        asked.append(key)
        return b""

    async with serving(second, APIS) as node:
        cluster.brokers, cluster.fenced = [(node, 0)], {0}
        facts = await cluster.asked()
    assert facts.partition_silence
    assert PARTITIONS not in asked


async def test_the_end_of_the_time_amid_a_page_is_no_fault_of_the_broker() -> None:
    cluster = Cluster()
    cluster.clock = ManualClock()
    cursor = response(PARTITIONS).cls.NextCursor(topic_name="b", partition_index=0)
    cluster.pages = [{"topics": [some("a", 1, -1)], "next_cursor": cursor}]
    facts = await cluster.asked()
    assert facts.partition_silence.startswith("there was time for 2 of them: raise default.api.")
