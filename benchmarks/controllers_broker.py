"""Part `broker`: a broker's start beside controllers whose image is wide.

Most partitions are those of brokers that only register; `HOSTED` are this broker's. It is stopped,
and started again with its directories. The time is that from the start of its process until it
leads all of them. Its connections to the controllers go through a relay that notes the heartbeats.
"""

import asyncio
import struct
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.controllers_client import create_topics
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import free_ports
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kafka_controllers import KafkaBroker, KafkaController
from tests.support.quorum.kept_brokers import registered
from tests.support.quorum.node_connection import NO_ANSWER, NodeConnection
from tests.support.quorum.own_controllers import TidemarkBroker
from tests.support.quorum.quorum import Plan, Quorum

NODE_ID = 11
HOSTED = 1_000
PARTITIONS_A_TOPIC = 100
TOPICS_A_REQUEST = 10
SESSION_MS, INTERVAL_MS = 9_000, 1_000
START_S = 300.0
AFTER_S = 5.0
METADATA_VERSION = 12


class WideKafkaBroker(KafkaBroker):
    """With room for very many partitions."""

    heap = "1g"


class Beats:
    """Passes bytes on between a broker and controllers.

    Attributes:
        at: When a heartbeat passed, by the process's clock in seconds.
    """

    def __init__(self) -> None:
        self.at: list[float] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def before(self, port: int, stack: AsyncExitStack) -> int:
        """Listen in front of a controller; returns the port for the broker."""
        (own,) = free_ports(1)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, here = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            for work in (self._requests(reader, here), self._answers(there, writer)):
                task = asyncio.create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", own)
        stack.callback(server.close)
        return own

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readexactly(6)
                size, key = struct.unpack(">ih", head)
                if key == ApiKey.BROKER_HEARTBEAT:
                    self.at.append(time.perf_counter())
                writer.write(head + await reader.readexactly(size - 2))
        except NO_ANSWER:
            writer.close()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except NO_ANSWER:
            pass
        writer.close()


async def broker(
    kind: type[Controller], directory: Path, partitions: int, runs: int
) -> dict[str, float]:
    """Figures of one kind; `kind` also says of whom the broker is."""
    settings = {
        "broker.session.timeout.ms": str(SESSION_MS),
        "broker.heartbeat.interval.ms": str(INTERVAL_MS),
    }
    plan = Plan(kind, is_dynamic=False, has_links=False, settings=settings)
    async with AsyncExitStack() as stack:
        quorum = await stack.enter_async_context(Quorum(directory, plan))
        beats = Beats()
        members = tuple(
            [
                replace(one, port=await beats.before(one.port, stack))
                for one in quorum.membership.members
            ]
        )
        is_kafka = issubclass(kind, KafkaController)
        node = (WideKafkaBroker if is_kafka else TidemarkBroker)(
            NODE_ID, directory / "broker", replace(quorum.membership, members=members), settings
        )
        stack.callback(node.close)
        _, tasks = await registered(quorum, 1)
        talk = quorum.talk((await quorum.leader()).node_id)
        names = [f"wide-{number}" for number in range((partitions - HOSTED) // PARTITIONS_A_TOPIC)]
        for first in range(0, len(names), TOPICS_A_REQUEST):
            await create_topics(talk, names[first : first + TOPICS_A_REQUEST], PARTITIONS_A_TOPIC)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await node.start()
        await _host(talk)
        await _leads_all(node)
        found = [await _started(node, beats) for _ in range(runs)]
    return {
        "start until it leads 1,000 partitions, shortest s": min(one["took"] for one in found),
        "start until it leads 1,000 partitions, longest s": max(one["took"] for one in found),
        "longest gap between two heartbeats, ms": max(one["gap"] for one in found),
        "CPU s of the broker's start, mean": sum(one["cpu"] for one in found) / runs,
        "resident MB": found[-1]["rss"],
    }


async def _host(talk: NodeConnection) -> None:
    """Topics whose only replica is this broker's."""
    for number in range(HOSTED // PARTITIONS_A_TOPIC):
        assignments = [
            {"partition_index": index, "broker_ids": [NODE_ID]}
            for index in range(PARTITIONS_A_TOPIC)
        ]
        topic = {
            "name": f"hosted-{number}",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments,
        }
        fields = {"topics": [topic], "timeout_ms": 60_000}
        answer = await talk.ask(ApiKey.CREATE_TOPICS, fields, timeout_s=90)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer


async def _leads_all(node: Controller) -> None:
    """Wait until the broker itself says so."""
    fields = {
        "topics": [{"name": f"hosted-{number}"} for number in range(HOSTED // PARTITIONS_A_TOPIC)],
        "allow_auto_topic_creation": False,
    }
    talk = NodeConnection(node.port)
    async with asyncio.timeout(START_S):
        while True:
            try:
                answer = await talk.ask(
                    ApiKey.METADATA, fields, timeout_s=30, version=METADATA_VERSION
                )
            except NO_ANSWER:
                await asyncio.sleep(0.02)
                continue
            leaders = [one.leader_id for topic in answer.topics for one in topic.partitions]
            if leaders == [NODE_ID] * HOSTED:
                talk.close()
                return
            await asyncio.sleep(0.02)


async def _started(node: Controller, beats: Beats) -> dict[str, float]:
    await node.stop()
    beats.at.clear()
    began = time.perf_counter()
    await node.start(wait=False)
    await _leads_all(node)
    took = time.perf_counter() - began
    process = psutil.Process(node.pid)
    times, rss = process.cpu_times(), process.memory_info().rss
    await asyncio.sleep(AFTER_S)
    gaps = [after - before for before, after in zip(beats.at, beats.at[1:], strict=False)]
    return {
        "took": took,
        "gap": max(gaps, default=0.0) * 1_000,
        "cpu": float(times.user + times.system),
        "rss": rss / 1e6,
    }
