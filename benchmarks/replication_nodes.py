"""Three nodes that are broker and controller, of one kind, and the requests of their clients."""

import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks.stall_probe import Client
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import free_ports
from tests.support.quorum.controllers import Controller
from tests.support.quorum.quorum import Plan, Quorum, until_asked

SETTINGS: Final = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
}
TOPICS_AT_ONCE: Final = 10
CREATED_S: Final = 300.0


class Nodes:
    """Three nodes that run.

    Attributes:
        addresses: Of their clients, by node id.
    """

    def __init__(self, quorum: Quorum, addresses: Mapping[int, str]) -> None:
        self.quorum, self.addresses = quorum, addresses

    async def others_than_the_controller(self) -> list[int]:
        """Nodes whose loss leaves the active controller in place."""
        leader = await self.quorum.settled()
        return [one for one in self.addresses if one != leader.node_id]

    async def until_all_serve(self) -> None:
        """Return when each node takes all of them for alive."""
        await until_asked(
            lambda: all(alive(one) == set(self.addresses) for one in self.addresses.values()),
            "all nodes serve",
            deadline_s=60,
        )

    async def create(
        self,
        names: Sequence[str],
        replicas: Sequence[Sequence[int]],
        config: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Make topics, each with these replicas a partition; returns when all are in sync."""
        cls = codec.request(ApiKey.CREATE_TOPICS).cls
        configs = [cls.Topics.Configs(name=key, value=value) for key, value in config.items()]
        assigned = [
            cls.Topics.Assignments(partition_index=index, broker_ids=list(ids))
            for index, ids in enumerate(replicas)
        ]
        address = next(iter(self.addresses.values()))
        for first in range(0, len(names), TOPICS_AT_ONCE):
            topics = [
                cls.Topics(
                    name=one,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=assigned,
                    configs=configs,
                )
                for one in names[first : first + TOPICS_AT_ONCE]
            ]
            with Client(address) as client:
                answer = client.ask(ApiKey.CREATE_TOPICS, 4, cls(topics=topics, timeout_ms=60_000))
            assert not any(one.error_code for one in answer.topics), answer
        await until_asked(
            lambda: are_in_sync(address, names, len(replicas)),
            "all replicas are in sync",
            deadline_s=CREATED_S,
        )


def metadata(address: str, topics: Sequence[str] = ()) -> Any:
    """Return a node's Metadata answer with some topics and all alive brokers, as the codec's."""
    cls = codec.request(ApiKey.METADATA).cls
    with Client(address) as client:
        return client.ask(ApiKey.METADATA, 9, cls(topics=[cls.Topics(name=one) for one in topics]))


def are_in_sync(address: str, topics: Sequence[str], partitions: int = 1) -> bool:
    """True if a node knows so many partitions of each, led and with all replicas in sync."""
    return all(
        len(topic.partitions) >= partitions
        and all(
            set(one.isr_nodes) == set(one.replica_nodes) and one.leader_id >= 0
            for one in topic.partitions
        )
        for topic in metadata(address, topics).topics
    )


def alive(address: str) -> set[int]:
    """Brokers that a node takes for alive; none where it does not answer."""
    try:
        return {one.node_id for one in metadata(address).brokers}
    except OSError:
        return set()


def touch_pages(megabytes: int) -> None:
    """Use memory once: the first use of a page may cost a virtual machine ten times a later one."""
    piece = os.urandom(1_000_000)
    with tempfile.TemporaryFile() as scratch:
        for _ in range(megabytes):
            scratch.write(piece)


@asynccontextmanager
async def running(kind: type[Controller], directory: Path) -> AsyncIterator[Nodes]:
    """Start them with their defaults; none is left running."""
    quorum = Quorum(directory, Plan(kind, is_dynamic=False, has_links=False, settings=SETTINGS))
    addresses = {}
    for (node_id, node), port in zip(quorum.controllers.items(), free_ports(3), strict=True):
        addresses[node_id] = f"127.0.0.1:{port}"
        node.settings["listeners"] = (
            f"CONTROLLER://127.0.0.1:{node.port},PLAINTEXT://{addresses[node_id]}"
        )
    async with quorum:
        nodes = Nodes(quorum, addresses)
        await nodes.until_all_serve()
        yield nodes
