"""A broker of ours and one of Apache Kafka that have the same partitions: real processes."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewTopic

from kafka_protocol.wire.api_keys import ApiKey
from local_log.file_names import EPOCH_CHECKPOINT
from metadata_topic.image.model import PartitionImage
from tests.support.brokers.bad_input import batch
from tests.support.kafka.tools import kafka_tool
from tests.support.quorum.committed import read_copy
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kafka_controllers import KafkaBroker, PlainKafkaController
from tests.support.quorum.node_connection import NodeConnection
from tests.support.quorum.own_controllers import TidemarkBroker
from tests.support.quorum.quorum import Plan, Quorum, until_asked
from tests.support.quorum.serving import PATIENCE_S, admin, brokers, until_true

OURS: Final = 11
KAFKAS: Final = 12
OTHER: Final = {OURS: KAFKAS, KAFKAS: OURS}
LED_BY: Final = {0: OURS, 1: KAFKAS}
"""The preferred leader of each partition of a topic."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SESSION: Final = {"broker.heartbeat.interval.ms": "1000", "broker.session.timeout.ms": "6000"}
SETTINGS: Final = SESSION | {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
RECORD: Final = b"x" * 3_000
_BATCH = re.compile(r"^baseOffset: .*$", re.MULTILINE)
_DUMPED = re.compile(r"^Dumping (\S+)$", re.MULTILINE)
_PRODUCER = re.compile(r"^producerId: .*$", re.MULTILINE)
_PLACE = re.compile(r" position: \d+")
_COMPLAINT = re.compile(r"^\S+ (?:ERROR|WARN) .*$", re.MULTILINE)
_EXPECTED: Final = (
    r"Partition \S+ marked as failed",  # the leader knows of the next epoch before it does
    r"Connection to node \S+ \S+ could not be established",  # that stopped
    "Error in response for fetch request",  # likewise
    r"Error processing append operation on partition \S+:safe-\d",  # below the minimum
    r"Truncate fully and reset fetch offset for partition cut-\d",  # all was deleted meanwhile
    # Two of its questions for the groups' topic cross each other.
    "Auto topic creation failed for __consumer_offsets with error 'TOPIC_ALREADY_EXISTS'",
    r"Truncating unclean-\d to offset \d+ below high watermark",
    # A new leader does not know yet all that the one before had committed.
    r"partition=(unclean|safe)-\d, .* Non-monotonic update of high watermark",
)
"""Complaints of Kafka's broker about what the tests do."""


@dataclass
class Mixed:
    """A cluster of both.

    Attributes:
        nodes: the two brokers by id.
        acknowledged: values of records that must be there, by topic.
    """

    quorum: Quorum
    nodes: Mapping[int, Any]
    values: Iterator[int] = field(default_factory=count)
    acknowledged: dict[str, set[bytes]] = field(default_factory=dict)

    @property
    def servers(self) -> str:
        return ",".join(one.address for one in self.nodes.values())

    async def create(self, topic: str, **config: str) -> None:
        """Two partitions; each broker leads one of them."""
        tools = admin(self.servers)
        replicas = [[leader, OTHER[leader]] for _, leader in sorted(LED_BY.items())]
        config = {name.replace("_", "."): value for name, value in config.items()}
        made = tools.create_topics([NewTopic(topic, 2, replica_assignment=replicas, config=config)])
        await asyncio.to_thread(made[topic].result, 30)
        await self.until_in_sync(topic)

    # -- what it says of itself

    def told(self, topic: str) -> dict[int, tuple[int, frozenset[int]]]:
        """Leader and ISR of each partition, if all brokers that run say the same."""
        found = []
        for node in self.nodes.values():
            if node.is_running and not node.is_paused:
                try:
                    parts = admin(node.address).list_topics(topic, timeout=5).topics[topic]
                except KafkaException:
                    return {}
                found.append(
                    {n: (one.leader, frozenset(one.isrs)) for n, one in parts.partitions.items()}
                )
        return found[0] if all(one == found[0] for one in found) else {}

    async def until_in_sync(self, topic: str) -> None:
        everybody = frozenset(self.nodes)

        def are() -> bool:
            found = self.told(topic)
            return bool(found) and all(isr == everybody for _, isr in found.values())

        try:
            await until_asked(are, f"{topic} is in sync", deadline_s=PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.told(topic)}") from None

    async def until_led(self, topic: str, by: Mapping[int, int]) -> None:
        def are() -> bool:
            return {n: leader for n, (leader, _) in self.told(topic).items()} == by

        await until_true(are, f"{topic} is led by {by}")

    async def committed(self, topic: str) -> dict[int, PartitionImage]:
        """The partitions as the metadata log has them now."""
        end = (await self.quorum.leader()).high_watermark
        copy = await asyncio.to_thread(read_copy, self.quorum.controllers[1], end)
        return dict(copy.image.topics_by_name[topic].partitions)

    # -- what is done to it

    async def elect_preferred(self, topic: str) -> None:
        """Have each partition led by its first replica."""
        tools = admin(self.servers)
        done = tools.elect_leaders(ElectionType.PREFERRED, None)
        await asyncio.to_thread(done.result, 30)
        await self.until_led(topic, LED_BY)

    async def produce(self, topic: str, number: int = 4) -> None:
        """Records to both partitions, in so many batches of each codec; all are acknowledged."""
        kept = self.acknowledged.setdefault(topic, set())
        for codec in CODECS:
            said = await asyncio.to_thread(self._produce, topic, number, codec)
            assert len(said) == 2 * number * 3, codec
            kept |= said

    def _produce(self, topic: str, number: int, codec: str) -> set[bytes]:
        acknowledged: set[bytes] = set()

        def delivered(error: object, message: Any) -> None:
            if error is None:
                acknowledged.add(message.value())

        settings = {"bootstrap.servers": self.servers, "enable.idempotence": True}
        more = {"compression.type": codec, "linger.ms": 5, "socket.timeout.ms": 5_000}
        producer = Producer(settings | more)
        for _ in range(number):
            for partition in LED_BY:
                for _ in range(3):
                    value = b"%d %s" % (next(self.values), RECORD)
                    producer.produce(topic, value, partition=partition, on_delivery=delivered)
            producer.flush(40)
        return acknowledged

    def read(self, topic: str) -> set[bytes]:
        """Values of all that a consumer reads now, up to the last stable offsets."""
        settings = {"bootstrap.servers": self.servers, "group.id": "g", "enable.auto.commit": False}
        consumer = Consumer(settings | {"enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in LED_BY])
        found, ended, deadline = set(), set(), time.monotonic() + PATIENCE_S
        while ended < LED_BY.keys():
            assert time.monotonic() < deadline, f"{topic} is read to the end"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found.add(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        consumer.close()
        return found

    async def cut(self, topic: str, offset: int) -> None:
        """Delete the records of both partitions below an offset; OFFSET_END: all."""
        tools = admin(self.servers)
        done = tools.delete_records([TopicPartition(topic, one, offset) for one in LED_BY])
        for one in done.values():
            await asyncio.to_thread(one.result, 30)

    async def stop(self) -> None:
        """Stop both brokers, ours first: Kafka's waits for no other to lead."""
        for node in self.nodes.values():
            assert await node.stop() == node.terminated

    async def refusal(self, topic: str) -> int:
        """The error code of a record with acks=all, of whoever leads."""
        said: list[Any] = []
        settings = {"bootstrap.servers": self.servers, "acks": "all", "retries": 0}
        producer = Producer(settings)
        producer.produce(topic, b"refused", partition=0, on_delivery=lambda e, _: said.append(e))
        await asyncio.to_thread(producer.flush, 30)
        return 0 if said[0] is None else said[0].code()

    async def transact(self, topic: str, name: str) -> None:
        """A transaction of two batches in the partition that Kafka's broker leads.

        Ended as its name says, `commit` or `abort`, or not at all. Asked of Kafka's broker alone: a
        client could ask ours for the coordinator, which says that it has none.
        """
        talk = NodeConnection(self.nodes[KAFKAS].port)

        async def ask(api: ApiKey, version: int, **fields: Any) -> Any:
            return await talk.ask(api, fields, timeout_s=30, version=version)

        given, known = None, {"transactional_id": name, "transaction_timeout_ms": 600_000}
        async with asyncio.timeout(PATIENCE_S):
            while given is None or given.error_code:  # the coordinator loads its state
                given = await ask(ApiKey.INIT_PRODUCER_ID, 3, **known)
        owner = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
        old = {f"v3_and_below_{one}": value for one, value in owner.items()}
        old["v3_and_below_topics"] = [{"name": topic, "partitions": [1]}]
        added = await ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id=name, **old
        )
        (one,) = added.results_by_topic_v3_and_below[0].results_by_partition
        assert one.partition_error_code == 0
        for number in range(2):
            records = batch(
                b"%s %d" % (name.encode(), number),
                base_sequence=number,
                is_transactional=True,
                **owner,
            )
            part = {"index": 1, "records": records}
            data = [{"name": topic, "partition_data": [part]}]
            told = await ask(
                ApiKey.PRODUCE,
                9,
                transactional_id=name,
                acks=-1,
                timeout_ms=30_000,
                topic_data=data,
            )
            assert told.responses[0].partition_responses[0].error_code == 0
        if name in ("commit", "abort"):
            is_commit = name == "commit"
            ended = await ask(
                ApiKey.END_TXN, 3, transactional_id=name, committed=is_commit, **owner
            )
            assert ended.error_code == 0
        talk.close()

    async def lose_a_tail(self, topic: str, leader: int) -> None:
        """Kill a leader that has records which the other has not, and bring it back."""
        (partition,) = (n for n, (led_by, _) in self.told(topic).items() if led_by == leader)
        old, new = self.nodes[leader], self.nodes[OTHER[leader]]
        new.pause()
        settings = {"bootstrap.servers": old.address, "acks": 1, "linger.ms": 0}
        producer = Producer(settings)
        for number in range(10):  # the first is on its way in the answer to a parked Fetch
            producer.produce(topic, b"lost %d" % number, partition=partition)
            assert await asyncio.to_thread(producer.flush, 10) == 0
        old.kill()
        new.resume()
        await self.until_led(topic, dict.fromkeys(LED_BY, new.node_id))
        await self.produce(topic, 1)
        await old.start()
        await self.until_in_sync(topic)


@asynccontextmanager
async def mixed(directory: Path, kind: type[Controller]) -> AsyncIterator[Mixed]:
    """A controller of one kind, and both brokers; started, and gone afterwards."""
    is_kafka = issubclass(kind, PlainKafkaController)
    plan = Plan(kind, is_dynamic=is_kafka, count=1, has_links=False, settings=SESSION)
    async with Quorum(directory, plan) as quorum:
        nodes = {
            node_id: of(node_id, directory / f"broker-{node_id}", quorum.membership, SETTINGS)
            for node_id, of in ((OURS, TidemarkBroker), (KAFKAS, KafkaBroker))
        }
        cluster = Mixed(quorum, nodes)
        try:
            for node in nodes.values():
                await node.start()
            for node in nodes.values():
                address = node.address
                await until_true(lambda a=address: {*nodes} <= brokers(a), "both serve")  # type: ignore[misc]
            yield cluster
        finally:
            for node in nodes.values():
                node.close()


def dumped(nodes: Iterable[Controller], *topics: str) -> list[dict[str, list[str]]]:
    """What dump-log shows of the partitions of stopped brokers.

    Batches by directory, without their place in a file; under `producers of` it the newest snapshot
    of what producers are known, in no order.
    """
    directories = [
        node.logs / f"{topic}-{partition}"
        for node in nodes
        for topic in topics
        for partition in LED_BY
    ]
    files = [
        str(file)
        for one in directories
        for file in (*sorted(one.glob("*.log")), max(one.glob("*.snapshot"), default=one))
        if file.is_file()
    ]
    _, *shown = _DUMPED.split(kafka_tool("dump-log", "--files", ",".join(files)))
    found: dict[Path, dict[str, list[str]]] = {node.logs: {} for node in nodes}
    for name, text in zip(shown[::2], shown[1::2], strict=True):
        directory, of_node = Path(name).parent, found[Path(name).parents[1]]
        if name.endswith(".snapshot"):
            newest = {line.split()[1]: line for line in _PRODUCER.findall(text)}
            of_node[f"producers of {directory.name}"] = sorted(newest.values())
        else:
            lines = [_PLACE.sub("", line) for line in _BATCH.findall(text)]
            assert all(" isvalid: true" in line for line in lines), text
            of_node.setdefault(directory.name, []).extend(lines)
    return [{name: lines for name, lines in one.items() if lines} for one in found.values()]


def checkpoint(node: Controller, name: str) -> list[list[str]]:
    """The entries of a checkpoint file of a stopped broker."""
    _, _, *entries = (node.logs / name).read_text().splitlines()
    return sorted(one.split() for one in entries)


def epochs(node: Controller, directory: str, *, end: int) -> list[list[str]]:
    """The epoch chain of a stopped broker, without epochs that begin at the log end (exclusive)."""
    entries = checkpoint(node, f"{directory}/{EPOCH_CHECKPOINT}")
    return [one for one in entries if int(one[1]) < end]


def complaints(node: Controller) -> list[str]:
    """What Kafka's broker says at WARN or ERROR and would not say among its own kind."""
    found = _COMPLAINT.findall(node.log_file.read_text())
    return [one for one in found if not re.search("|".join(_EXPECTED), one)]
