"""Rounds of losing brokers and controllers of a cluster with three copies of each partition.

    python -m tests.support.quorum.replica_rounds --rounds 20 --seed 1 [--combined]

Two idempotent producers write all the time, and a group reads. In the end each acknowledged record
is at its offset, once, in all three copies, and the group has read all of them.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import NewTopic

from kafka_protocol.records.batch import iter_batches
from tests.support.brokers.clients import read_all
from tests.support.brokers.process import free_ports
from tests.support.quorum.own_controllers import SERVING, TidemarkBroker, TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until, until_asked
from tests.support.quorum.serving import admin
from tests.support.quorum.tier_rounds import Traffic

TOPIC: Final = "kept"
PARTITIONS: Final = 6
COPIES: Final = 3
BROKERS: Final = (11, 12, 13)
DEEDS: Final = (
    "kill a broker", "kill the active controller", "pause a broker", "stop a broker",
    "stop the controller", "pause the controller",
)  # fmt: skip
PAUSED_S: Final = 4.0
"""Longer than a broker's session."""
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
}


@dataclass
class Replicated:
    """A cluster that keeps three copies.

    Attributes:
        nodes: those that serve clients; each has an address and a directory.
    """

    quorum: Quorum
    nodes: list[Any]

    @property
    def servers(self) -> str:
        return ",".join(one.address for one in self.nodes)

    def in_sync(self) -> Mapping[int, frozenset[int]]:
        """Members of the ISR of each partition, as a broker that answers says."""
        for node in self.nodes:
            try:
                found = admin(node.address).list_topics(TOPIC, timeout=2).topics[TOPIC]
            except KafkaException:
                continue
            return {one: frozenset(part.isrs) for one, part in found.partitions.items()}
        return {}

    def is_whole(self) -> bool:
        found = self.in_sync()
        return len(found) == PARTITIONS and all(len(isr) == COPIES for isr in found.values())

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
    directory: Path, settings: Mapping[str, str] = SETTINGS
) -> AsyncIterator[Replicated]:
    """Three controllers, and three brokers beside them."""
    # With eligible leader replicas the controllers' own setting is that of the cluster.
    own = {MIN_ISR: settings[MIN_ISR]}
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False, settings=own)
    async with Quorum(directory, plan) as quorum:
        nodes = [
            TidemarkBroker(one, directory / f"broker-{one}", quorum.membership, settings)
            for one in BROKERS
        ]
        try:
            await asyncio.gather(*(one.start() for one in nodes))
            yield Replicated(quorum, nodes)
        finally:
            for one in nodes:
                one.close()


@asynccontextmanager
async def combined(directory: Path) -> AsyncIterator[Replicated]:
    """Three nodes that are broker and controller."""
    settings = SETTINGS | {"process.roles": "broker,controller"}
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False, settings=settings)
    quorum = Quorum(directory, plan)
    nodes: list[Any] = list(quorum.controllers.values())
    for node, port in zip(nodes, free_ports(len(nodes)), strict=True):
        node.address = f"127.0.0.1:{port}"
        node.settings["listeners"] = (
            f"CONTROLLER://127.0.0.1:{node.port},PLAINTEXT://{node.address}"
        )
    async with quorum:
        yield Replicated(quorum, nodes)


class Reading:
    """A group of one that reads all the time, from a thread.

    Attributes:
        read: keys by (partition, offset).
        errors: what the client has told.
    """

    def __init__(
        self, cluster: Replicated, read: dict[tuple[int, int], bytes] | None = None
    ) -> None:
        """Join the group; `read`: what it has read before."""
        self.read = {} if read is None else read
        self.errors: list[str] = []
        self._servers, self._stopping = cluster.servers, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        settings = {"group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"bootstrap.servers": self._servers})
        consumer.subscribe([TOPIC])
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is not None:
                self.errors.append(str(message.error()))
            elif message is not None:
                self.read[message.partition(), message.offset()] = message.key()
        consumer.close()


async def create(cluster: Replicated, copies: int = COPIES) -> None:
    """Make the topic."""
    topic = NewTopic(TOPIC, PARTITIONS, copies)
    tools = admin(cluster.nodes[0].address)
    await asyncio.to_thread(tools.create_topics([topic])[TOPIC].result, 30)


async def run_rounds(
    cluster: Replicated,
    *,
    seed: int,
    rounds: int,
    say: Callable[[str], None] = lambda _text: None,
) -> None:
    """Go through rounds; fails with what cannot be."""
    dice = Random(seed)
    await create(cluster)
    await cluster.until_whole()
    traffic = [
        Traffic(cluster.servers, TOPIC, PARTITIONS, record_bytes=RECORD_BYTES, timeout_ms=CLIENT_MS)
        for _ in range(2)
    ]
    reading = Reading(cluster)

    def least() -> int:
        return min(one.least for one in traffic)

    try:
        for number in range(rounds):
            deed = DEEDS[number % len(DEEDS)]
            before = least()
            said = await _do(cluster, deed, dice, least)
            await cluster.until_whole()
            await until(
                lambda before=before: least() >= before + 10,  # type: ignore[misc]
                f"records are acknowledged again after round {number}: {said}",
                deadline_s=BETWEEN_S,
            )
            say(f"round {number}: {said}, {least()} acknowledged")
    finally:
        await asyncio.gather(*(asyncio.to_thread(one.stop) for one in traffic))
        try:
            await until_read(traffic, reading)
        finally:
            await asyncio.to_thread(reading.stop)
    await judge(cluster, traffic)
    say("everything is there, in all copies")


async def _do(cluster: Replicated, deed: str, dice: Random, acknowledged: Callable[[], int]) -> str:
    """Lose a node, wait until records are acknowledged without it, and bring it back."""
    quorum = cluster.quorum
    if deed.endswith("a broker"):
        node = dice.choice(cluster.nodes)
    else:
        node = quorum.controllers[(await quorum.leader()).node_id]
    before, began = acknowledged(), time.monotonic()
    if deed.startswith("kill"):
        node.kill()
    elif deed.startswith("stop"):
        assert await node.stop() == 0
    else:
        node.pause()
    await until(
        lambda: acknowledged() > before + 1,
        f"records are acknowledged: {deed}",
        deadline_s=BETWEEN_S,
    )
    took_ms = int((time.monotonic() - began) * 1_000)
    if node.is_paused:
        await asyncio.sleep(dice.random() * PAUSED_S)
        node.resume()
    else:
        await node.start()
    return f"{deed}, {node.node_id}: acknowledged in all partitions after {took_ms} ms"


async def until_read(traffic: list[Traffic], reading: Reading) -> None:
    """Wait until the group has all that was acknowledged."""
    wanted = {
        ((partition, offset), key)
        for one in traffic
        for partition, keys in enumerate(one.acknowledged)
        for offset, key in keys.items()
    }
    try:
        await until(
            lambda: wanted <= reading.read.items(),
            "the group has read everything",
            deadline_s=BETWEEN_S,
        )
    except AssertionError as error:
        missing = sorted(wanted - reading.read.items())
        ends = {
            one: max((at for part, at in reading.read if part == one), default=-1)
            for one in range(PARTITIONS)
        }
        other = {place: reading.read.get(place) for place, _ in missing[:5]}
        raise AssertionError(
            f"{error}: {len(missing)} of {len(wanted)} are missing: {missing[:5]}; read instead: "
            f"{other}; last read: {ends}; consumer: {reading.errors[-5:]}"
        ) from None


async def judge(cluster: Replicated, traffic: list[Traffic]) -> None:
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
    parser.add_argument("--keep", type=Path, help="keep the directories here")
    asked = parser.parse_args()
    starts = combined if asked.combined else apart
    with tempfile.TemporaryDirectory() as place:
        async with starts(asked.keep or Path(place)) as cluster:
            await run_rounds(cluster, seed=asked.seed, rounds=asked.rounds, say=print)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
