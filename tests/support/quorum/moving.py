"""Partitions that are given other replicas, as operators' tools ask for it; and rounds of that."""

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from confluent_kafka import KafkaException

from kafka_client.blocking import BlockingClient, ClusterError
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.serving import admin
from tests.support.quorum.tiering import PATIENCE_S, Cluster

Replicas = Mapping[int, Sequence[int] | None]
"""By partition; None: those of before."""
PUT_ASIDE = "was put aside by this start"


def _ask(servers: str, key: ApiKey, **fields: Any) -> Any:
    with BlockingClient(servers) as client:
        return client.ask_any(key, 0, request(key).cls(timeout_ms=30_000, **fields))


def reassign(servers: str, wanted: Mapping[str, Replicas]) -> list[int]:
    """Begin moves of partitions by topic, or cancel them; error codes, in that order."""
    cls = request(ApiKey.ALTER_PARTITION_REASSIGNMENTS).cls
    part = cls.Topics.Partitions
    topics = [
        cls.Topics(
            name=topic,
            partitions=[
                part(partition_index=index, replicas=None if ids is None else list(ids))
                for index, ids in partitions.items()
            ],
        )
        for topic, partitions in wanted.items()
    ]
    answer = _ask(servers, ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=topics)
    return [one.error_code for topic in answer.responses for one in topic.partitions]


def going(servers: str) -> dict[tuple[str, int], tuple[list[int], list[int]]]:
    """What ListPartitionReassignments says is being added and removed."""
    answer = _ask(servers, ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None)
    return {
        (topic.name, one.partition_index): (one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    }


class Moves:
    """Moves all partitions of a topic again and again.

    Attributes:
        begun, cancelled: how many were, of one partition each.
    """

    def __init__(self, cluster: Cluster, topic: str, partitions: int, rng: Random) -> None:
        """Move nothing yet."""
        self._cluster, self._topic, self._rng = cluster, topic, rng
        self._partitions = range(partitions)
        self._may_be: dict[int, list[frozenset[int]]] = {}
        self.begun = self.cancelled = 0

    async def begin(self, replicas: int) -> None:
        """Give each partition other replicas, as many, in another order; they are not there yet."""
        now = await self._replicas()
        wanted: dict[int, list[int]] = {}
        for one in self._partitions:
            while frozenset(wanted.setdefault(one, [*now[one]])) == now[one]:
                wanted[one] = self._rng.sample(sorted(self._cluster.ids), replicas)
        codes = await self._ask(dict(wanted))
        assert set(codes) == {0}, codes
        self._may_be = {one: [frozenset(ids)] for one, ids in wanted.items()}
        self.begun += len(wanted)

    async def cancel(self) -> None:
        """Give those moves up that are not over."""
        self._may_be = {one: [] for one in self._partitions}  # those that are over stay so
        codes: list[int] = []

        async def try_it() -> bool:
            with suppress(ClusterError):
                codes[:] = await self._ask(dict.fromkeys(self._partitions, None))
            return bool(codes) and set(codes) <= {0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}

        deadline = time.monotonic() + PATIENCE_S
        while not await try_it():
            assert time.monotonic() < deadline, f"not cancelled after {PATIENCE_S} s: {codes}"
        self.cancelled += codes.count(0)

    async def until_over(self, replicas: int) -> None:
        """Wait until all are where they were to be, and in sync; nobody else has anything."""
        await until_asked(
            lambda: self._are_over(replicas),
            f"the replicas of {self._topic} are moved to {self._may_be}",
            deadline_s=PATIENCE_S,
        )

    def _are_over(self, replicas: int) -> bool:
        with suppress(KafkaException, ClusterError):  # somebody answers in a moment
            found = admin(self._cluster.servers).list_topics(self._topic, timeout=10)
            for index, one in found.topics[self._topic].partitions.items():
                ids = frozenset(one.replicas)
                if len(ids) != replicas or set(one.isrs) != ids:
                    return False
                if self._may_be[index] and ids not in self._may_be[index]:
                    return False
                others = [node for node in self._cluster.nodes if node.node_id not in ids]
                if any(node.local_segments(self._topic, index) for node in others):
                    return False
            return not going(self._cluster.servers)
        return False

    async def tidy(self) -> list[int]:
        """Delete what was put aside where replicas left while a broker was down; which brokers.

        They say so until they are started again.
        """
        found = [one for one in self._cluster.nodes if PUT_ASIDE in str(one.health())]
        for node in found:
            for path in node.logs.glob("*-stray"):
                await asyncio.to_thread(shutil.rmtree, path)
            assert await node.stop() == 0
            await node.start()
        return [one.node_id for one in found]

    async def _replicas(self) -> dict[int, frozenset[int]]:
        tools = admin(self._cluster.servers)
        found = await asyncio.to_thread(tools.list_topics, self._topic, timeout=30)
        partitions = found.topics[self._topic].partitions
        return {one: frozenset(partition.replicas) for one, partition in partitions.items()}

    async def _ask(self, wanted: Replicas) -> list[int]:
        return await asyncio.to_thread(reassign, self._cluster.servers, {self._topic: wanted})
