"""Rounds of losing brokers and controllers of a cluster with three copies of each partition.

    python -m tests.support.quorum.replica_rounds --rounds 20 --seed 1 [--combined] [--kafka]

Two idempotent producers write all the time, and a group reads. In the end each acknowledged record
is at its offset, once, in all three copies, and the group has read all of them. A broker that is
cut off reaches no other node and is reached by none, but by clients: it must not say yes to them.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.clients import read_all
from tests.support.brokers.process import free_ports
from tests.support.quorum.kafka_controllers import KafkaController
from tests.support.quorum.links import (
    BROKERS_LISTENER,
    Links,
    Network,
    links_before,
    listen_behind,
)
from tests.support.quorum.node_connection import NO_ANSWER, NodeConnection
from tests.support.quorum.own_controllers import SERVING, TidemarkBroker, TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until, until_asked
from tests.support.quorum.reading import Reading, until_read
from tests.support.quorum.serving import admin, brokers, leaders
from tests.support.quorum.tier_rounds import Traffic

TOPIC: Final = "kept"
OFFSETS: Final = "__consumer_offsets"
PARTITIONS: Final = 6
COPIES: Final = 3
BROKERS: Final = (11, 12, 13)
HOW: Final = ("kill", "pause", "cut off", "stop")
DEEDS: Final = tuple((how, what) for how in HOW for what in ("a broker", "the active controller"))
PAUSED_S: Final = 4.0
"""The longest that a node stays away after others have taken its place."""
BETWEEN_S: Final = 60.0
RECORD_BYTES: Final = 2_000
CLIENT_MS: Final = 5_000
"""A producer waits so long for the answer of a broker that is paused."""
MIN_ISR: Final = "min.insync.replicas"
SETTINGS: Final = SERVING | {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    MIN_ISR: "2",
    "replica.lag.time.max.ms": "6000",
    **BROKERS_LISTENER,
}


@dataclass
class Replicated:
    """A cluster that keeps three copies.

    Attributes:
        nodes: those that serve clients; each has an address and a directory.
        links: the proxies before their listeners for brokers.
    """

    quorum: Quorum
    nodes: Sequence[Any]
    links: Links

    @property
    def servers(self) -> str:
        return ",".join(one.address for one in self.nodes)

    @property
    def network(self) -> Network:
        """Between all nodes: before brokers, and before controllers."""
        assert self.quorum.links is not None
        everybody = {one.node_id for one in self.nodes} | set(self.quorum.controllers)
        return Network(everybody, self.links, self.quorum.links)

    def in_sync(self, node: Any, topic: str = TOPIC) -> Mapping[int, frozenset[int]]:
        """Members of the ISR of each partition, as a node says; none where it does not answer."""
        try:
            found = admin(node.address).list_topics(timeout=2).topics
        except KafkaException:
            return {}
        partitions = found[topic].partitions if topic in found else {}
        return {one: frozenset(partition.isrs) for one, partition in partitions.items()}

    def is_whole(self) -> bool:
        """Whether each node says that all replicas are in sync, those of offsets, if any, too."""
        return all(
            {len(isr) for isr in self.in_sync(node).values()} == {COPIES}
            and {len(isr) for isr in self.in_sync(node, OFFSETS).values()} <= {COPIES}
            for node in self.nodes
        )

    async def until_whole(self) -> None:
        await until_asked(self.is_whole, "all replicas are in sync", deadline_s=BETWEEN_S)

    def batches(self, node_id: int, partition: int) -> list[tuple[int, int, int]]:
        """(base offset, leader epoch, checksum) of what a stopped broker has."""
        (node,) = (one for one in self.nodes if one.node_id == node_id)
        (directory,) = node.directory.rglob(f"{TOPIC}-{partition}")
        return [
            (header.base_offset, header.partition_leader_epoch, header.crc)
            for segment in sorted(directory.glob("*.log"))
            for _, header in iter_batches(segment.read_bytes())
        ]


@asynccontextmanager
async def apart(
    directory: Path, settings: Mapping[str, str] = SETTINGS, *, voters: int = 3
) -> AsyncIterator[Replicated]:
    """Controllers, and three brokers beside them."""
    own, links = links_before(BROKERS)
    # With eligible leader replicas the controllers' own setting is that of the cluster.
    plan = Plan(
        TidemarkController, is_dynamic=False, count=voters, settings={MIN_ISR: settings[MIN_ISR]}
    )
    async with Quorum(directory, plan) as quorum, links:
        nodes = [
            TidemarkBroker(one, directory / f"broker-{one}", quorum.membership, settings)
            for one in BROKERS
        ]
        async with AsyncExitStack() as stack:
            for one in nodes:
                listen_behind(links, one, own[one.node_id])
                stack.callback(one.close)
            await asyncio.gather(*(one.start() for one in nodes))
            yield Replicated(quorum, nodes, links)


class KafkaNode(KafkaController):
    """Apache Kafka, as broker and controller."""

    heap = "512m"


@asynccontextmanager
async def combined(
    directory: Path, kind: type[TidemarkController] | type[KafkaNode] = TidemarkController
) -> AsyncIterator[Replicated]:
    """Three nodes that are broker and controller."""
    settings = SETTINGS | {"process.roles": "broker,controller"}
    quorum = Quorum(directory, Plan(kind, is_dynamic=False, settings=settings))
    nodes: list[Any] = list(quorum.controllers.values())
    own, links = links_before(list(quorum.controllers))
    for node, port in zip(nodes, free_ports(len(nodes)), strict=True):
        node.address = f"127.0.0.1:{port}"
        listen_behind(links, node, own[node.node_id], f"CONTROLLER://127.0.0.1:{node.port},")
    async with links, quorum:
        yield Replicated(quorum, nodes, links)


async def create(cluster: Replicated, copies: int = COPIES) -> None:
    """Make the topic once all brokers are known."""
    ids = {one.node_id for one in cluster.nodes}
    for node in cluster.nodes:
        await until_asked(
            lambda node=node: brokers(node.address) == ids,  # type: ignore[misc]
            f"{node.node_id} knows all brokers",
            deadline_s=BETWEEN_S,
        )
    topic = NewTopic(TOPIC, PARTITIONS, copies)
    tools = admin(cluster.nodes[0].address)
    await asyncio.to_thread(tools.create_topics([topic])[TOPIC].result, 30)


@dataclass
class Failovers:
    """How long partitions wait once their leader's broker is fenced.

    Attributes:
        after_s: seconds from then to the first acknowledgement of each partition that it led.
    """

    after_s: list[float] = field(default_factory=list)

    @property
    def summary(self) -> str:
        if not self.after_s:
            return "no leader was fenced"
        return (
            f"{len(self.after_s)} partitions acknowledge again after the fencing of their leader: "
            f"median {median(self.after_s):.2f} s, longest {max(self.after_s):.2f} s"
        )


async def run_rounds(
    cluster: Replicated,
    *,
    seed: int,
    rounds: int,
    say: Callable[[str], None] = lambda _text: None,
) -> None:
    """Go through rounds; fails with what cannot be."""
    rng = Random(seed)
    await create(cluster)
    await cluster.until_whole()
    traffic = [
        Traffic(cluster.servers, TOPIC, PARTITIONS, record_bytes=RECORD_BYTES, timeout_ms=CLIENT_MS)
        for _ in range(2)
    ]
    reading, failovers = Reading(cluster.servers, TOPIC), Failovers()

    def least() -> int:
        return min(one.least for one in traffic)

    deeds: list[tuple[str, str]] = []
    try:
        for number in range(rounds):
            deeds = deeds or rng.sample(DEEDS, len(DEEDS))
            before = least()
            said = await _do(cluster, *deeds.pop(), rng, traffic, failovers)
            await cluster.until_whole()
            await until(
                lambda before=before: least() >= before + 10,  # type: ignore[misc]
                f"records are acknowledged again after round {number}: {said}",
                deadline_s=BETWEEN_S,
            )
            say(f"round {number}: {said}, {least()} acknowledged")
    finally:
        cluster.network.heal()
        await asyncio.gather(*(asyncio.to_thread(one.stop) for one in traffic))
        try:
            await until_read([one.acknowledged for one in traffic], reading)
        finally:
            await asyncio.to_thread(reading.stop)
    await validate(cluster, traffic)
    say(f"everything is there, in all copies; {failovers.summary}")


async def _do(
    cluster: Replicated,
    how: str,
    what: str,
    rng: Random,
    traffic: Sequence[Traffic],
    failovers: Failovers,
) -> str:
    """Lose a node, wait until records are acknowledged without it, and bring it back."""
    quorum = cluster.quorum
    if what == "a broker":
        node = rng.choice(cluster.nodes)
    else:
        node = quorum.controllers[(await quorum.leader()).node_id]
    told = await asyncio.to_thread(leaders, cluster.nodes[0].address, TOPIC)
    led = [partition for partition, leader in told.items() if leader == node.node_id]

    def acknowledged(partition: int) -> list[int]:
        return [len(one.acknowledged[partition]) for one in traffic]

    before, began = min(one.least for one in traffic), time.monotonic()
    if how == "kill":
        node.kill()
    elif how == "cut off":
        cluster.network.cut_off(node.node_id)
    elif how == "pause":
        node.pause()
    else:
        assert await node.stop() == node.terminated
    if led and how != "stop":
        await _until_fenced(cluster, node)
        waits, fenced = {one: acknowledged(one) for one in led}, time.monotonic()
        while waits:
            for one, counts in list(waits.items()):
                if any(now > then for now, then in zip(acknowledged(one), counts, strict=True)):
                    failovers.after_s.append(time.monotonic() - fenced)
                    del waits[one]
            assert time.monotonic() < fenced + BETWEEN_S, f"{how} {node.node_id}: {waits} wait"
            await asyncio.sleep(0.01)
    await until(
        lambda: min(one.least for one in traffic) > before + 1,
        f"records are acknowledged: {how} {node.node_id}",
        deadline_s=BETWEEN_S,
    )
    took_ms = int((time.monotonic() - began) * 1_000)
    if how in ("pause", "cut off"):
        await asyncio.sleep(rng.random() * PAUSED_S)
        if node.is_paused:
            node.resume()
        cluster.network.heal()
    else:
        await node.start()
    return f"{how} {what}, {node.node_id}: acknowledged in all partitions after {took_ms} ms"


async def _until_fenced(cluster: Replicated, node: Any) -> None:
    """Wait until another broker names it no longer among those that live."""
    talks = [
        NodeConnection(int(one.address.split(":")[1])) for one in cluster.nodes if one is not node
    ]
    deadline = time.monotonic() + BETWEEN_S
    try:
        while time.monotonic() < deadline:
            for talk in talks:
                try:
                    answer = await talk.ask(
                        ApiKey.METADATA, {"topics": []}, timeout_s=1, version=12
                    )
                except NO_ANSWER:
                    continue
                if node.node_id not in {one.node_id for one in answer.brokers}:
                    return
            await asyncio.sleep(0.01)
    finally:
        for talk in talks:
            talk.close()
    raise AssertionError(f"broker {node.node_id} is not fenced within {BETWEEN_S} s")


async def validate(cluster: Replicated, traffic: list[Traffic]) -> None:
    """Stop the brokers: what was acknowledged has to be there once, and in all copies."""
    await cluster.until_whole()
    for partition in range(PARTITIONS):
        found = await asyncio.to_thread(
            read_all, SimpleNamespace(bootstrap=cluster.servers), TOPIC, partition
        )
        there = {offset: key for offset, key, _ in found}
        for one in traffic:
            missing = one.acknowledged[partition].items() - there.items()
            assert not missing, f"{TOPIC}-{partition} lost {len(missing)} acknowledged records"
            unplaced = {key for at, key in one.unplaced if at == partition}
            assert unplaced <= set(there.values()), f"{TOPIC}-{partition} lost {unplaced}"
        twice = len(there) - len(set(there.values()))
        assert not twice, f"{TOPIC}-{partition} has {twice} records twice"
    await asyncio.gather(*(one.stop() for one in cluster.nodes))
    for partition in range(PARTITIONS):
        first, *others = (cluster.batches(one.node_id, partition) for one in cluster.nodes)
        for other in others:
            assert other == first, f"the copies of {TOPIC}-{partition} differ"


async def main() -> int:
    """Run the rounds that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--combined", action="store_true")
    parser.add_argument("--kafka", action="store_true", help="three nodes of Apache Kafka")
    parser.add_argument("--keep", type=Path, help="keep the directories here")
    asked = parser.parse_args()
    starts = combined if asked.combined else apart
    if asked.kafka:
        starts = partial(combined, kind=KafkaNode)
    with tempfile.TemporaryDirectory() as place:
        async with starts(asked.keep or Path(place)) as cluster:
            await run_rounds(cluster, seed=asked.seed, rounds=asked.rounds, say=print)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
