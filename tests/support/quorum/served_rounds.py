"""Rounds of losing controllers and brokers while clients create topics and produce.

    python -m tests.support.quorum.served_rounds --rounds 50 --seed 1 [--dynamic]

Three controllers and two brokers, both with a remote tier, are processes of their own. Prints a
line a round and the seed; exit code 1 with the first thing that cannot be.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from metadata_topic.quorum.log.batches import read_batches
from tests.support.brokers.process import LOCAL_FS
from tests.support.quorum.committed import batches_of
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.own_controllers import TidemarkBroker, TidemarkController, broker_nodes
from tests.support.quorum.quorum import Plan, Quorum, until
from tests.support.quorum.serving import admin, brokers, until_true

BROKERS = (11, 12)
DEEDS = (
    "kill the leader", "pause the leader", "cut the leader off", "stop the leader",
    "kill a broker", "pause a broker",
)  # fmt: skip
SLEEP_S = 4.0
"""How long a broker is paused: longer than its session of 3 s."""
PARTITIONS = 2
VALUE_BYTES = 20_000
TOPICS_MAX = 12
PAUSE_S = 0.2
QUEUED_MAX = 500
BETWEEN = 100
"""Records that are acknowledged between two rounds."""
PROGRESS_S = 90.0
TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "1", "segment.bytes": "1048576"}


@dataclass
class Report:
    """What came of it; `wrong` holds what cannot be, a sentence each."""

    topics: int = 0
    records: int = 0
    remote_bytes: int = 0
    without_ms: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Load:
    """Clients on threads: one creates topics, one produces to all of them.

    Attributes:
        topics: acknowledged.
        records: acknowledged, (topic, partition) to values by offset.
    """

    def __init__(self, addresses: str) -> None:
        self.topics: list[str] = []
        self.records: dict[tuple[str, int], dict[int, bytes]] = {}
        self.count = 0
        self.failed: list[str] = []
        self._addresses = addresses
        self._ends = threading.Event()

    async def run(self) -> None:
        """Until `end`."""
        await asyncio.gather(asyncio.to_thread(self._create), asyncio.to_thread(self._produce))

    def end(self) -> None:
        self._ends.set()

    def _create(self) -> None:
        tools = admin(self._addresses)
        for number in range(TOPICS_MAX):
            name = f"load-{number}"
            while not self._ends.is_set():
                new = NewTopic(name, PARTITIONS, 1, config=TIERED)
                try:
                    tools.create_topics([new], request_timeout=20)[name].result(30)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        continue  # asked again under the same name, whatever became of it
                self.topics.append(name)
                break
            self._ends.wait(1)

    def _produce(self) -> None:
        """Values of one partition count up; after the end, all that was sent is acknowledged."""
        producer = Producer({
            "bootstrap.servers": self._addresses,
            "enable.idempotence": True,
            "delivery.timeout.ms": 120_000,
            "linger.ms": 5,
        })  # fmt: skip
        sent: Counter[tuple[str, int]] = Counter()
        while not self._ends.is_set():
            for topic in list(self.topics):
                for partition in range(PARTITIONS):
                    number = sent[topic, partition]
                    value = (b"%d/" % number).ljust(VALUE_BYTES, b".")
                    producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
                    sent[topic, partition] += 1
            waits = time.monotonic() + PAUSE_S
            while len(producer) > QUEUED_MAX or time.monotonic() < waits:
                producer.poll(0.05)
                if self._ends.is_set():
                    break
        left = producer.flush(120)
        if left:
            self.failed.append(f"{left} records were neither acknowledged nor refused")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        if error is not None:
            self.failed.append(f"{topic}-{partition}: {error}")
            return
        assert offset is not None
        self.records.setdefault((topic, partition), {})[offset] = message.value() or b""
        self.count += 1

    def read_back(self) -> list[str]:
        """Read all partitions from their beginning; what is not as it was acknowledged."""
        wrong = []
        consumer = Consumer({"bootstrap.servers": self._addresses, "group.id": "reader"})
        for (topic, partition), values in sorted(self.records.items()):
            consumer.assign([TopicPartition(topic, partition, 0)])
            last, next_offset, deadline = max(values), 0, time.monotonic() + PROGRESS_S
            while next_offset <= last and time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is None or message.error() is not None:
                    continue
                offset = message.offset()
                assert offset is not None
                if offset != next_offset or values.get(offset, message.value()) != message.value():
                    wrong.append(f"{topic}-{partition}: {offset} where {next_offset} is due")
                    break
                next_offset = offset + 1
            else:
                if next_offset <= last:
                    wrong.append(f"{topic}-{partition} was read to {next_offset}, not {last}")
        consumer.close()
        return wrong


async def run_rounds(
    directory: Path, *, is_dynamic: bool, seed: int, rounds: int, say: Callable[[str], None] = print
) -> Report:
    """Go through rounds under load, then read everything back and audit the tier."""
    dice, report = Random(seed), Report()
    settings = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
    plan = Plan(TidemarkController, is_dynamic, settings=settings | _tier(directory))
    async with (
        Quorum(directory, plan) as quorum,
        broker_nodes(quorum, *BROKERS, settings=_tier(directory)) as nodes,
    ):
        for node in nodes:
            await until_true(lambda at=node.address: brokers(at) == set(BROKERS), "both serve")
        load = Load(",".join(node.address for node in nodes))
        running = asyncio.create_task(load.run())
        fences: Counter[int] = Counter()
        try:
            for number in range(rounds):
                await _progress(load, running, f"in round {number}")
                say(f"round {number}: {await _round(quorum, nodes, dice, fences, report)}")
            await _progress(load, running, "after the last round")
        finally:
            load.end()
            await running
        report.topics, report.records = len(load.topics), load.count
        await _judge(quorum, nodes, load, fences, report)
    return report


def _tier(directory: Path) -> dict[str, str]:
    """Settings of every node: one store, one secret, short times."""
    secret = directory / "cluster.secret"
    if not secret.exists():
        directory.mkdir(parents=True, exist_ok=True)
        secret.write_text(f"{'5a' * 32}\n")
        secret.chmod(0o600)
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": LOCAL_FS,
        "rsm.config.dir": str(directory / "remote"),
        "tidemark.cluster.secret.file": str(secret),
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "500",
        "tidemark.remote.copy.max.ms": "5000",
        "tidemark.remote.delete.grace.ms": "1000",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    }


async def _progress(load: Load, running: "asyncio.Task[None]", when: str) -> None:
    done = load.count + BETWEEN
    await until(
        lambda: load.count >= done or running.done() or load.failed,
        f"{BETWEEN} records are acknowledged {when}",
        deadline_s=PROGRESS_S,
    )
    assert not running.done(), "the clients have ended"
    assert not load.failed, load.failed[:5]


async def _round(
    quorum: Quorum,
    nodes: list[TidemarkBroker],
    dice: Random,
    fences: Counter[int],
    report: Report,
) -> str:
    deed = dice.choice(DEEDS)
    if deed.endswith("a broker"):
        node = dice.choice(nodes)
        fences[node.node_id] += 1
        if deed == "kill a broker":
            node.kill()
            await node.start()
        else:
            slept = time.monotonic() + SLEEP_S
            node.pause()
            await until(lambda: time.monotonic() > slept, "it slept", deadline_s=2 * SLEEP_S)
            node.resume()
        for one in nodes:
            await until_true(lambda at=one.address: brokers(at) == set(BROKERS), "both serve")
        return f"{deed}, {node.node_id}"
    leader = await quorum.leader()
    controller = quorum.controllers[leader.node_id]
    began = time.monotonic()
    if deed == "kill the leader":
        controller.kill()
    elif deed == "pause the leader":
        controller.pause()
    elif deed == "stop the leader":
        assert await controller.stop() == 0
    else:
        assert quorum.links is not None
        for links in quorum.links.around(leader.node_id):
            quorum.links.cut(links)
    other = await quorum.leader(above=leader.epoch, without=[leader.node_id])
    took_ms = int((time.monotonic() - began) * 1000)
    report.without_ms.append(took_ms)
    if deed == "pause the leader":
        controller.resume()
    elif deed == "cut the leader off":
        assert quorum.links is not None
        quorum.links.heal()
    else:
        await controller.start()
    return f"{deed}, {leader.node_id}: {other.node_id} led after {took_ms} ms"


async def _judge(
    quorum: Quorum,
    nodes: list[TidemarkBroker],
    load: Load,
    fences: Counter[int],
    report: Report,
) -> None:
    report.wrong += load.failed[:10]
    report.wrong += await asyncio.to_thread(load.read_back)
    end = (await quorum.settled()).high_watermark
    seen = _fenced(quorum, end)
    for broker_id in BROKERS:
        if seen[broker_id] > fences[broker_id]:
            report.wrong.append(
                f"broker {broker_id} was fenced {seen[broker_id]} times, and killed or paused "
                f"{fences[broker_id]} times"
            )
    config = str(nodes[0].config_file)
    command = [sys.executable, "-m", "tidemark.cli", "remote", "audit", "--json"]
    code, said = await run_to_end(
        [*command, "--config", config, "--bootstrap-server", nodes[0].address]
    )
    report.remote_bytes = sum(
        path.stat().st_size for path in (quorum.directory / "remote").rglob("*.log")
    )
    if code:
        report.wrong.append(f"audit: {said[:2000]}")
    else:
        json.loads(said)


def _fenced(quorum: Quorum, end: int) -> Counter[int]:
    """How often each broker's session ran out, by the log of the controller that has most of it."""
    most = min(quorum.controllers.values(), key=lambda one: min(batches_of(one, end), default=end))
    found: Counter[int] = Counter()
    for data in batches_of(most, end).values():
        for batch in read_batches(data):
            for record in batch.records:
                value = record.value
                if record.name == "BrokerRegistrationChangeRecord" and value.fenced > 0:
                    found[value.broker_id] += 1
    return found


async def _main(options: argparse.Namespace, directory: Path) -> int:
    report = await run_rounds(
        directory, is_dynamic=options.dynamic, seed=options.seed, rounds=options.rounds
    )
    times = sorted(report.without_ms) or [0]
    print(
        f"seed {options.seed}: {options.rounds} rounds, {report.topics} topics, {report.records} "
        f"records acknowledged, {report.remote_bytes} bytes in the remote tier; without a leader: "
        f"median {times[len(times) // 2]} ms, longest {times[-1]} ms"
    )
    for text in report.wrong[:20]:
        print(text)
    return 1 if report.wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dynamic", action="store_true", help="voters in the log")
    parser.add_argument("--keep", type=Path, help="directory for everything, kept")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        sys.exit(asyncio.run(_main(options, options.keep)))
    with tempfile.TemporaryDirectory() as directory:
        sys.exit(asyncio.run(_main(options, Path(directory))))


if __name__ == "__main__":
    main()
