"""Rounds of losing controllers, brokers, tiers and the store of a cluster while it tiers.

    python -m tests.support.quorum.tier_rounds --rounds 50 --seed 1 [--combined] [--dynamic] \
        [--replicas 3] [--moves] [--store s3] [--keep DIRECTORY]

Records are produced all the time, a group reads and commits, others read from the first record on
again and again, and tiered topics are made and deleted. In the end everything acknowledged is there
at its offset, in both tiers, the audit of the store finds nothing, and no broker was fenced that
was neither killed nor paused nor cut off. With --combined the nodes have links that can be cut.

With --moves all partitions are given other replicas just before something is lost, which is
cancelled in every third round meanwhile; with --combined there are three nodes, so --replicas 2.
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
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from metadata_topic.quorum.log.batches import read_batches
from tests.support.brokers.clients import read_all
from tests.support.quorum.committed import batches_of
from tests.support.quorum.moving import Moves
from tests.support.quorum.quorum import Quorum, until_stalled
from tests.support.quorum.reading import REFRESHED, Lagging, Reading, until_read
from tests.support.quorum.serving import admin, leaders
from tests.support.quorum.tier_stores import DirectoryStore, TierStore, store_in_s3
from tests.support.quorum.tiering import (
    STORE,
    TOPIC,
    Cluster,
    Tiering,
    audited,
    tiers_apart,
    tiers_linked,
)

DEEDS = (
    "kill the active controller", "kill a broker", "kill a tier", "pause the controller",
    "cut the controller off", "stop the controller", "pause a broker",
)  # fmt: skip
CUT_OFF = "cut a broker off"
THE_STORE = " the store"
KEPT = "kept"
RECORD_BYTES = 40_000
BETWEEN_S = 60.0
PAUSE_S = 0.02
CLIENT_MS = 5_000
"""The producer waits so long for the answer of a broker that is away."""
LAGGING = 2
PAUSED_S = 4.0
"""Longer than a follower's patience, and than a broker's session."""
NEW_TOPICS = 2
DONE_BEFORE: Final = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART}
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
        pause_s: float = PAUSE_S,
    ) -> None:
        self._servers, self._record_bytes, self._timeout_ms = servers, record_bytes, timeout_ms
        self._pause_s = pause_s
        self._name = os.urandom(4).hex()
        self._topic, self._stopping = topic, threading.Event()
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        self.unplaced: set[tuple[int, bytes]] = set()
        self._filling = os.urandom(self._record_bytes)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def value_of(self, key: bytes) -> bytes:
        """The value of the record that has this key, and of no other."""
        return key + self._filling[len(key) :]

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
        number = 0
        while not self._stopping.wait(self._pause_s):
            for partition, keys in enumerate(self.acknowledged):
                key = b"%s-%d" % (self._name.encode(), number)
                with suppress(BufferError):
                    producer.produce(
                        self._topic,
                        self.value_of(key),
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
    has_moves: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> None:
    """Go through rounds; fails with what cannot be."""
    partitions = 2 * len(cluster.nodes)
    settings = {"min_insync_replicas": "2"} if replicas > 1 else {}
    await cluster.create(KEPT, partitions, replicas=replicas, **settings)
    traffic = Traffic(
        cluster.servers,
        KEPT,
        partitions,
        record_bytes=RECORD_BYTES // replicas,  # each is written so many times
        timeout_ms=CLIENT_MS,
        pause_s=PAUSE_S * replicas,  # and read again and again
    )
    group = Reading(cluster.servers, KEPT, members=2)
    lagging = [
        Lagging(cluster.servers, KEPT, traffic.acknowledged, traffic.value_of)
        for _ in range(LAGGING)
    ]
    churn = Churn(cluster, replicas)
    churning = asyncio.create_task(churn.run())
    losses = Losses(cluster, traffic, Random(seed), replicas)
    moves = Moves(cluster, KEPT, partitions, Random(seed)) if has_moves else None
    try:
        for number in range(rounds):
            before = traffic.least
            if moves is None:
                said = await losses.next()
            else:
                said = await _lose_in_a_move(losses, moves, replicas, cancels=number % 3 == 2)
            await cluster.until_all_serve()
            if moves is not None:
                await moves.until_over(replicas)
            elif replicas > 1:
                await cluster.until_in_sync(KEPT)
            await until_acknowledged(traffic, before + 10, f"after round {number}: {said}")
            assert not churning.done(), churning.exception()
            for one in (group, *lagging):
                assert not one.wrong, one.wrong[:5]
            passes = min(one.passes for one in lagging)
            say(
                f"round {number}: {said}; {traffic.least} acknowledged, {len(churn.deleted)} gone, "
                f"{passes} passes of all"
            )
        churning.cancel()
        await asyncio.to_thread(traffic.stop)
        await until_read([traffic.acknowledged], group)
        for one in lagging:
            await until_passed(one)
    finally:
        churning.cancel()
        await asyncio.wait({churning})
        for each in (traffic, group, *lagging):
            await asyncio.to_thread(each.stop)
    if moves is not None:
        losses.lost.update(await moves.tidy())
    await _validate(cluster, traffic, churn, say)
    fenced = _fenced(cluster.quorum, (await cluster.quorum.settled()).high_watermark)
    lost = losses.lost
    assert fenced <= lost, f"sessions that ran out: {fenced}, lost by deeds: {lost}"
    say("everything is there, and the audit is clean")


async def _lose_in_a_move(losses: "Losses", moves: Moves, replicas: int, *, cancels: bool) -> str:
    """What was done, when it is undone."""
    await moves.begin(replicas)
    loss = asyncio.create_task(losses.next())
    try:
        if cancels:
            await moves.cancel()
    finally:
        said = await loss
    return f"{said}, of {moves.begun} moves so far {moves.cancelled} cancelled"


async def until_acknowledged(traffic: Traffic, count: int, when: str) -> None:
    """Wait until so many records of each partition are acknowledged."""
    await until_stalled(
        lambda: traffic.least >= count,
        lambda: traffic.least,
        f"records are acknowledged {when}",
        stalled_s=BETWEEN_S,
    )


async def until_passed(reader: Lagging) -> None:
    """Wait until a reader has come to the end once more."""
    passes = reader.passes
    await until_stalled(
        lambda: reader.passes > passes,
        lambda: reader.records,
        f"a reader comes to the end: {reader.errors[-5:]}",
        stalled_s=BETWEEN_S,
    )
    assert not reader.wrong, reader.wrong[:5]


class Losses:
    """Loses something for a while, then something else, until all was lost once, and again.

    Attributes:
        lost: how often each node was killed, stopped, paused or cut off.
    """

    def __init__(self, cluster: Cluster, traffic: Traffic, rng: Random, replicas: int) -> None:
        self._cluster, self._quorum = cluster, cluster.quorum
        self._traffic, self._rng, self._replicas = traffic, rng, replicas
        self.lost: Counter[int] = Counter()
        self._left: list[str] = []

    async def next(self) -> str:
        """What was done, when it is undone."""
        cluster = self._cluster
        if not self._left:
            deeds = [*DEEDS, *(how + THE_STORE for how in cluster.store.losses)]
            deeds += [CUT_OFF] if cluster.network else []
            self._left = self._rng.sample(deeds, len(deeds))
        deed = self._left.pop()
        if deed.endswith(THE_STORE):
            return await self._lose_store(deed.removesuffix(THE_STORE))
        if deed == CUT_OFF:
            return await self._cut_off()
        if deed == "kill a tier":
            return f"kill the tier of {self._kill_tier()}"
        if deed.endswith("a broker"):
            return await self._lose_broker(deed)
        return await self._lose_controller(deed)

    def _kill_tier(self) -> int:
        node = self._rng.choice(self._cluster.nodes)
        if tier := node.tier_pid():
            os.kill(tier, signal.SIGKILL)
        return node.node_id

    async def _lose_store(self, how: str) -> str:
        """Local work continues without it; a tier that starts meanwhile does not find it."""
        said = f"{how} the store"
        self._cluster.store.lose(how)
        try:
            await asyncio.sleep(self._rng.random() * PAUSED_S)
            if self._rng.random() < 0.5:
                said += f", and kill the tier of {self._kill_tier()}"
            await until_acknowledged(self._traffic, self._traffic.least + 10, f"during: {said}")
            await asyncio.sleep(self._rng.random() * PAUSED_S)
        finally:
            self._cluster.store.restore()
        return said

    async def _cut_off(self) -> str:
        """From all nodes and their tiers, not from clients: it must not say yes to them."""
        network, node = self._cluster.network, self._rng.choice(self._cluster.nodes)
        assert network is not None
        self.lost[node.node_id] += 1
        network.cut_off(node.node_id)
        try:
            if self._replicas > 2:
                await until_acknowledged(
                    self._traffic, self._traffic.least + 2, f"without {node.node_id}"
                )
            await asyncio.sleep(self._rng.random() * PAUSED_S)
        finally:
            network.heal()
        return f"{CUT_OFF}, {node.node_id}"

    async def _lose_broker(self, deed: str) -> str:
        node = self._rng.choice(self._cluster.nodes)
        self.lost[node.node_id] += 1
        if deed == "kill a broker":
            node.kill()
            await node.start()
        else:
            node.pause()
            await asyncio.sleep(PAUSED_S)
            node.resume()
        return f"{deed}, {node.node_id}"

    async def _lose_controller(self, deed: str) -> str:
        quorum = self._quorum
        leader = await quorum.leader()
        active = quorum.controllers[leader.node_id]
        began = time.monotonic()
        if leader.node_id in self._cluster.ids or deed != "cut the controller off":
            self.lost[leader.node_id] += 1
        if deed == "cut the controller off" and quorum.links:
            for links in quorum.links.around(leader.node_id):
                quorum.links.cut(links)
        elif deed == "pause the controller":
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
            await asyncio.sleep(self._rng.random() * PAUSED_S)
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


async def validate_records(here: Tiering, traffic: Traffic, topic: str) -> None:
    """Each acknowledged record is read at its offset, and none twice."""
    for partition, keys in enumerate(traffic.acknowledged):
        found = await asyncio.to_thread(read_all, here, topic, partition)
        there = {offset: key for offset, key, _ in found}
        missing = keys.items() - there.items()
        assert not missing, f"{topic}-{partition} lost {len(missing)} acknowledged records"
        others = [offset for offset, key, value in found if value != traffic.value_of(key or b"")]
        assert not others, f"{topic}-{partition} has other bytes at {others[:5]}"
        unplaced = {key for at, key in traffic.unplaced if at == partition}
        assert unplaced <= set(there.values()), f"{topic}-{partition} lost {unplaced}"
        first = {key: offset for offset, key in reversed(there.items())}
        twice = [(first[key], offset) for offset, key in there.items() if first[key] != offset]
        assert not twice, f"{topic}-{partition} has {len(twice)} records twice, at {twice[:5]}"


async def _validate(
    cluster: Cluster, traffic: Traffic, churn: Churn, say: Callable[[str], None]
) -> None:
    await cluster.until_green()
    led = await asyncio.to_thread(leaders, cluster.nodes[0].address, KEPT)
    await cluster.until_only_active_is_local(KEPT, led)
    here = cluster.nodes[0]
    await validate_records(here, traffic, KEPT)
    tiers: Counter[str] = Counter()
    for partition, leader in led.items():
        (local_start,) = cluster.node(leader).local_segments(KEPT, partition)
        there = Counter(
            "remote" if offset < local_start else "local"
            for offset in traffic.acknowledged[partition]
        )
        assert len(there) == 2, f"{KEPT}-{partition} is not in both tiers: {there}"
        tiers += there
    say(f"acknowledged records were read back: {dict(tiers)}")
    for name in churn.deleted:
        await cluster.until_nothing_is_left(name)
    audit = await audited(here, "--deep")
    lines = [one for one in audit.splitlines() if one.startswith("broker ")]
    assert [int(one.split()[1]) for one in lines] == sorted(cluster.ids), audit
    assert all("; claim " in one for one in lines), audit
    say(audit)


def main() -> int:
    """Run the rounds that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--combined", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--moves", action="store_true")
    parser.add_argument("--store", choices=("directory", "s3"), default="directory")
    parser.add_argument("--keep", type=Path, help="keep the directories here")
    asked = parser.parse_args()
    assert asked.combined or asked.store == "directory", "--store s3 needs --combined"
    with ExitStack() as stack:
        place = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if asked.store == "s3":
            from tests.support.stores.s3 import CREDENTIALS, running_s3  # boto3 loads slowly

            os.environ.update(CREDENTIALS)
            s3 = stack.enter_context(running_s3(place / "s3"))
            store: TierStore = stack.enter_context(store_in_s3(s3))
        else:
            store = DirectoryStore(place / STORE)
        asyncio.run(_run(asked, place / "nodes", store))
    return 0


async def _run(asked: argparse.Namespace, place: Path, store: TierStore) -> None:
    await asyncio.to_thread(place.mkdir, parents=True)
    if asked.combined:
        starts = tiers_linked(place, store, is_dynamic=asked.dynamic)
    else:
        starts = tiers_apart(place, is_dynamic=asked.dynamic)
    async with starts as cluster:
        await run_rounds(
            cluster,
            seed=asked.seed,
            rounds=asked.rounds,
            replicas=asked.replicas,
            has_moves=asked.moves,
            say=print,
        )


if __name__ == "__main__":
    sys.exit(main())
