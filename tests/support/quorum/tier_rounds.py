"""Rounds of losing controllers, brokers and tiers of a cluster while it tiers.

    python -m tests.support.quorum.tier_rounds --rounds 50 --seed 1 [--combined] [--dynamic] \
        [--replicas 3]

Records are produced all the time, and tiered topics made and deleted. In the end everything
acknowledged is there at its offset, the audit of the store finds nothing, and no broker was fenced
that was neither killed nor paused.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from metadata_topic.quorum.log.batches import read_batches
from tests.support.brokers.clients import read_all
from tests.support.quorum.committed import batches_of
from tests.support.quorum.quorum import Quorum, until, until_asked
from tests.support.quorum.serving import admin, leaders
from tests.support.quorum.tiering import (
    TOPIC,
    Cluster,
    Tiering,
    audited,
    tiers_apart,
    tiers_combined,
)

DEEDS = (
    "kill the active controller", "kill a broker", "kill a tier", "pause the controller",
    "cut the controller off", "stop the controller", "pause a broker",
)  # fmt: skip
KEPT = "kept"
RECORD_BYTES = 40_000
BETWEEN_S = 60.0
PAUSE_S = 0.02
PAUSED_S = 4.0
"""Longer than a follower's patience, and than a broker's session."""
NEW_TOPICS = 2
DONE_BEFORE: Final = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART}
REFRESHED: Final = {"topic.metadata.refresh.interval.ms": 1_000}
"""Of clients: a broker that is cut off answers them, and does not know that another leads."""
Change = Callable[[AdminClient, str], Any]


class Traffic:
    """Produces to all partitions of a topic from a thread, and knows what was acknowledged.

    Attributes:
        acknowledged: for each partition keys by offset.
        unplaced: (partition, key) of those whose offset the broker did not tell.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        partitions: int,
        *,
        record_bytes: int = RECORD_BYTES,
        timeout_ms: int = 60_000,
    ) -> None:
        self._servers, self._record_bytes, self._timeout_ms = servers, record_bytes, timeout_ms
        self._name = os.urandom(4).hex()
        self._topic, self._stopping = topic, threading.Event()
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        self.unplaced: set[tuple[int, bytes]] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def least(self) -> int:
        return min(len(keys) for keys in self.acknowledged)

    def stop(self) -> None:
        """Returns when each record is acknowledged or lost."""
        self._stopping.set()
        self._thread.join()

    def _delivered(self, message: Any, key: bytes, keys: dict[int, bytes]) -> None:
        """The answer to a batch that was sent again long after the first time has no offset."""
        if message.offset() is None:
            self.unplaced.add((message.partition(), key))
        else:
            keys[message.offset()] = key

    def _run(self) -> None:
        settings = {"enable.idempotence": True, "delivery.timeout.ms": 120_000, "linger.ms": 5}
        settings |= {"bootstrap.servers": self._servers, "socket.timeout.ms": self._timeout_ms}
        settings |= {"request.timeout.ms": self._timeout_ms}
        producer = Producer(settings | REFRESHED)
        number, filling = 0, os.urandom(self._record_bytes)
        while not self._stopping.wait(PAUSE_S):
            for partition, keys in enumerate(self.acknowledged):
                key = b"%s-%d" % (self._name.encode(), number)
                with suppress(BufferError):
                    producer.produce(
                        self._topic,
                        filling,
                        key,
                        partition,
                        on_delivery=lambda error, message, key=key, keys=keys: (
                            error or self._delivered(message, key, keys)
                        ),
                    )
            number += 1
            producer.poll(0)
        producer.flush(130)


class Churn:
    """Makes tiered topics and deletes them when they have something remote."""

    def __init__(self, cluster: Cluster, replicas: int) -> None:
        """`replicas` of each partition."""
        self._cluster, self._replicas = cluster, replicas
        self.deleted: list[str] = []
        self._there: list[str] = []

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            name = f"churned-{number}"
            await asyncio.to_thread(self._tries, self._make, name)
            self._there.append(name)
            await asyncio.to_thread(self._fill, name)
            if len(self._there) > NEW_TOPICS:
                name = self._there.pop(0)
                await asyncio.to_thread(self._tries, self._delete, name)
                self.deleted.append(name)

    def _tries(self, change: Change, name: str) -> None:
        """Until the active controller says that it is done, through one of the nodes.

        A node that was paused may know nothing of the topic yet, and says so to Metadata.
        """
        while True:
            for node in self._cluster.nodes:
                tools = admin(node.address)
                try:
                    change(tools, name)[name].result(10)
                except TimeoutError:
                    continue  # a node that is paused
                except KafkaException as error:
                    if error.args[0].code() in DONE_BEFORE:
                        return
                else:
                    return
            time.sleep(PAUSE_S)

    def _make(self, tools: AdminClient, name: str) -> Any:
        return tools.create_topics([NewTopic(name, 2, self._replicas, config=TOPIC)])

    def _delete(self, tools: AdminClient, name: str) -> Any:
        return tools.delete_topics([name])

    def _fill(self, name: str) -> None:
        servers = ",".join(one.address for one in self._cluster.nodes)
        producer = Producer({"bootstrap.servers": servers, "delivery.timeout.ms": 60_000})
        for number in range(60):
            producer.produce(name, os.urandom(RECORD_BYTES), partition=number % 2)
        producer.flush(70)


async def run_rounds(
    cluster: Cluster,
    *,
    seed: int,
    rounds: int,
    replicas: int = 1,
    say: Callable[[str], None] = lambda _text: None,
) -> None:
    """Go through rounds; fails with what cannot be."""
    dice = Random(seed)
    partitions = 2 * len(cluster.nodes)
    await cluster.create(KEPT, partitions, replicas=replicas)
    record_bytes = RECORD_BYTES // replicas  # each is written so many times
    traffic = Traffic(cluster.servers, KEPT, partitions, record_bytes=record_bytes)
    churn = Churn(cluster, replicas)
    lost: Counter[int] = Counter()
    churning = asyncio.create_task(churn.run())
    try:
        for number in range(rounds):
            deed = DEEDS[number % len(DEEDS)]
            before = traffic.least
            said = await _do(cluster, deed, dice, lost)
            await cluster.until_all_serve()
            await until(
                lambda before=before: traffic.least >= before + 10,  # type: ignore[misc]
                f"records are acknowledged again after round {number}: {said}",
                deadline_s=BETWEEN_S,
            )
            assert not churning.done(), churning.exception()
            say(f"round {number}: {said}, {traffic.least} acknowledged, {len(churn.deleted)} gone")
    finally:
        churning.cancel()
        await asyncio.wait({churning})
        await asyncio.to_thread(traffic.stop)
    await _judge(cluster, traffic, churn)
    fenced = _fenced(cluster.quorum, (await cluster.quorum.settled()).high_watermark)
    assert fenced <= lost, f"sessions that ran out: {fenced}, killed or paused: {lost}"
    say("everything is there, and the audit is clean")


async def _do(cluster: Cluster, deed: str, dice: Random, lost: Counter[int]) -> str:
    """Counts in `lost` how often each node was killed, stopped or paused."""
    if deed == "kill a tier":
        node = dice.choice(cluster.nodes)
        if tier := node.tier_pid():
            os.kill(tier, signal.SIGKILL)
        return f"{deed} of {node.node_id}"
    if deed.endswith("a broker"):
        node = dice.choice(cluster.nodes)
        lost[node.node_id] += 1
        if deed == "kill a broker":
            node.kill()
            await node.start()
        else:
            node.pause()
            await asyncio.sleep(PAUSED_S)
            node.resume()
        return f"{deed}, {node.node_id}"
    quorum = cluster.quorum
    leader = await quorum.leader()
    active = quorum.controllers[leader.node_id]
    began = time.monotonic()
    if deed == "cut the controller off" and quorum.links:
        for links in quorum.links.around(leader.node_id):
            quorum.links.cut(links)
    else:
        lost[leader.node_id] += 1
        if deed == "pause the controller":
            active.pause()
        elif deed == "stop the controller":
            assert await active.stop() == 0
        else:
            active.kill()
    other = await quorum.leader(above=leader.epoch, without=[leader.node_id])
    took_ms = int((time.monotonic() - began) * 1_000)
    if quorum.links:
        quorum.links.heal()
    if active.is_paused:
        await asyncio.sleep(dice.random() * PAUSED_S)
        active.resume()
    elif not active.is_running:
        await active.start()
    return f"{deed}, {leader.node_id}: {other.node_id} led after {took_ms} ms"


def _fenced(quorum: Quorum, end: int) -> Counter[int]:
    """How often each broker's session ran out, by the copy of the log that begins first."""
    copies = [batches_of(one, end) for one in quorum.controllers.values()]
    longest = min(copies, key=lambda batches: min(batches, default=end))
    return Counter(
        record.value.broker_id
        for data in longest.values()
        for batch in read_batches(data)
        for record in batch.records
        if record.name == "BrokerRegistrationChangeRecord" and record.value.fenced > 0
    )


async def judge_records(here: Tiering, traffic: Traffic, topic: str) -> None:
    """Each acknowledged record is read at its offset, and none twice."""
    for partition, keys in enumerate(traffic.acknowledged):
        found = await asyncio.to_thread(read_all, here, topic, partition)
        there = {offset: key for offset, key, _ in found}
        missing = keys.items() - there.items()
        assert not missing, f"{topic}-{partition} lost {len(missing)} acknowledged records"
        unplaced = {key for at, key in traffic.unplaced if at == partition}
        assert unplaced <= set(there.values()), f"{topic}-{partition} lost {unplaced}"
        twice = len(there) - len(set(there.values()))
        assert not twice, f"{topic}-{partition} has {twice} records twice"


async def _judge(cluster: Cluster, traffic: Traffic, churn: Churn) -> None:
    await cluster.until_green()
    led = await asyncio.to_thread(leaders, cluster.nodes[0].address, KEPT)
    await cluster.until_only_active_is_local(KEPT, led)
    here = cluster.nodes[0]
    await judge_records(here, traffic, KEPT)
    for name in churn.deleted:
        await until_asked(
            lambda name=name: not cluster.objects(name),  # type: ignore[misc]
            f"the store has nothing of {name}",
            deadline_s=BETWEEN_S,
        )
    await audited(here, "--deep")


async def main() -> int:
    """Run the rounds that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--combined", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--replicas", type=int, default=1)
    asked = parser.parse_args()
    starts = tiers_combined if asked.combined else tiers_apart
    with tempfile.TemporaryDirectory() as place:
        async with starts(Path(place), is_dynamic=asked.dynamic) as cluster:
            await run_rounds(
                cluster, seed=asked.seed, rounds=asked.rounds, replicas=asked.replicas, say=print
            )
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
