"""A cluster of Apache Kafka whose nodes are replaced by ours, one after the other, and back.

Three controllers and three brokers of Kafka, each on the directory, id and port of its place. A
place keeps them whoever runs there. Clients of `traffic.py` read and write all the time.
"""

import asyncio
import json
import shutil
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from confluent_kafka import (
    ElectionType,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewTopic

from tests.support.brokers.process import free_ports
from tests.support.kafka.tiered import NAME as KAFKAS_LAYOUT
from tests.support.kafka.tools import kafka_tool
from tests.support.quorum.controllers import Controller, run_to_end
from tests.support.quorum.kafka_controllers import KafkaBroker, KafkaController
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until_asked
from tests.support.quorum.serving import admin, brokers

IDS: Final = (11, 12, 13)
REMOTE_METADATA: Final = "__remote_log_metadata"
METADATA_PARTITIONS: Final = 3
PLAIN, TIERED, COMPACTED, MOVED = "plain", "tiered", "compacted", "moved"
"""Topics: MOVED has records of transactions, committed and aborted ones."""
PATIENCE_S: Final = 120.0
NOT_SERVED: Final = ("group.version", "transaction.version", "share.version", "streams.version")
SESSION: Final = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "6000"}
SWITCH: Final = {"remote.log.storage.system.enable": "true"}
CONTROLLERS_KEYS: Final = SESSION | SWITCH | {"min.insync.replicas": "2"}
CACHES: Final = ("remote-log-metadata", "remote-log-chunk-cache", "remote-log-index-cache")
"""Directories of our tier: Kafka refuses the names of the first two, the content of the third."""
_BROKERS_KEYS: Final = SESSION | {
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "log.index.size.max.bytes": "65536",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "200",
    "log.cleaner.backoff.ms": "500",
    **SWITCH,
    "remote.log.storage.manager.class.name": (
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
    ),
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "remote.log.manager.task.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    "rlmm.config.remote.log.metadata.topic.min.isr": "2",
    "rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS),
}
_TIERED_TOPIC: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
}


class TakenOver(TidemarkController):
    """Ours in the place of a node of Kafka, by its properties and `changes`."""

    def __init__(self, before: Controller, changes: Mapping[str, str]) -> None:
        super().__init__(before.node_id, before.directory, before.membership)
        self._before, self._changes = before, changes
        self.port = before.port

    def properties(self) -> dict[str, str]:
        return self._before.properties() | self._changes

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class Place:
    """Where a node of either kind runs.

    Attributes:
        kafka, ours: the two on one directory; one of them runs.
        node: which one.
    """

    def __init__(self, kafka: Controller, changes: Mapping[str, str]) -> None:
        self.kafka, self.ours = kafka, TakenOver(kafka, changes)
        self.node: Controller = kafka

    async def give_to(self, node: Controller) -> None:
        """Stop the one that runs by SIGTERM, and start the other."""
        assert await self.node.stop() == self.node.terminated, self.node.log_tail()
        await self.begin(node)

    async def begin(self, node: Controller) -> None:
        if node is self.kafka:
            for name in CACHES:
                shutil.rmtree(node.logs / name, ignore_errors=True)
        self.node = node
        await node.start()


class TakeOver:
    """The cluster.

    Attributes:
        controllers, brokers: places by node id.
        store: directory of the remote tier.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.store = directory, directory / "remote-tier"
        self.quorum = Quorum(
            directory,
            Plan(KafkaController, is_dynamic=False, has_links=False, settings=CONTROLLERS_KEYS),
        )
        self.controllers = {one: Place(node, {}) for one, node in self.quorum.controllers.items()}
        self.brokers: dict[int, Place] = {}
        for one in IDS:
            settings = _BROKERS_KEYS | {"rsm.config.dir": str(self.store)}
            place = directory / f"broker-{one}"
            node = KafkaBroker(one, place, self.quorum.membership, settings)
            (http,) = free_ports(1)
            self.brokers[one] = Place(node, {
                "remote.log.storage.manager.class.name": KAFKAS_LAYOUT,
                "tidemark.cluster.secret.file": str(directory / "cluster.secret"),
                "tidemark.http.listener": f"127.0.0.1:{http}",
            })  # fmt: skip

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{place.node.port}" for place in self.brokers.values())

    async def start(self) -> None:
        await asyncio.gather(*(place.node.start() for place in self.brokers.values()))
        await self.until_all_serve()

    def close(self) -> None:
        for place in (*self.brokers.values(), *self.controllers.values()):
            place.node.close()

    # -- what is there

    async def until_all_serve(self) -> None:
        for place in self.brokers.values():
            at = f"127.0.0.1:{place.node.port}"
            await until_asked(
                lambda at=at: brokers(at) == set(IDS),  # type: ignore[misc]
                f"all brokers serve, says {at}",
                deadline_s=PATIENCE_S,
            )

    async def until_in_sync(self) -> None:
        """Wait until each partition of each topic has all its replicas in sync."""
        lacks: list[str] = []

        def are() -> bool:
            lacks[:] = ["nobody answers"]
            with suppress(KafkaException):
                topics = admin(self.servers).list_topics(timeout=10).topics
                lacks[:] = [
                    f"{name}-{index} leader={one.leader} isr={one.isrs} of {one.replicas}"
                    for name, topic in topics.items()
                    for index, one in topic.partitions.items()
                    if set(one.isrs) != set(one.replicas) or one.leader < 0
                ]
            return not lacks

        try:
            await until_asked(are, "all replicas are in sync", deadline_s=PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {lacks}") from None

    def health(self, broker: int) -> dict[str, Any]:
        """The page of one of ours; red where nobody listens."""
        at = self.brokers[broker].ours.properties()["tidemark.http.listener"]
        try:
            with urllib.request.urlopen(f"http://{at}/health", timeout=5) as answer:
                return dict(json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            with error:
                return dict(json.loads(error.read()))
        except OSError:
            return {"status": "red", "reasons": ["nobody listens"]}

    def remote_segments(self, topic: str, partition: int) -> list[int]:
        """Base offsets of what the store has."""
        found = self.store.glob(f"kafka-tiered-storage/{topic}-{partition}-*/*.log")
        return sorted({int(path.name.split("-")[0]) for path in found})

    def local_segments(self, broker: int, topic: str, partition: int) -> list[int]:
        found = (self.brokers[broker].node.logs / f"{topic}-{partition}").glob("*.log")
        return sorted(int(path.stem) for path in found)

    def leader(self, topic: str, partition: int) -> int:
        topics = admin(self.servers).list_topics(topic, timeout=10).topics
        return int(topics[topic].partitions[partition].leader)

    # -- what is done to it

    async def create(self, topic: str, partitions: int = 2, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        tools = admin(self.servers)
        made = tools.create_topics([NewTopic(topic, partitions, 3, config=settings)])
        await asyncio.to_thread(made[topic].result, 30)

    async def create_topics(self) -> None:
        await self.create(PLAIN, 3)
        await self.create(TIERED, 2, **{k.replace(".", "_"): v for k, v in _TIERED_TOPIC.items()})
        await self.create(
            COMPACTED,
            1,
            cleanup_policy="compact",
            segment_ms="1000",
            min_cleanable_dirty_ratio="0.01",
        )
        await self.create(MOVED, 1)
        await self.until_in_sync()

    async def lower_features(self) -> str:
        """Switch off what our brokers do not serve, as its operator does."""
        off = [word for name in NOT_SERVED for word in ("--feature", f"{name}=0")]
        return await asyncio.to_thread(
            kafka_tool, "features", "--bootstrap-server", self.servers, "downgrade", *off
        )

    async def copying(self, *, is_on: bool) -> None:
        """Let brokers copy segments of the tiered topic, or let all stay on their disks."""
        keep = {"local.retention.bytes": "-2", "remote.log.copy.disable": "true"}
        copy = {"local.retention.bytes": "1", "remote.log.copy.disable": "false"}
        settings = ",".join(f"{k}={v}" for k, v in (copy if is_on else keep).items())
        await asyncio.to_thread(
            kafka_tool, "configs", "--bootstrap-server", self.servers, "--alter",
            "--entity-type", "topics", "--entity-name", TIERED, "--add-config", settings,
        )  # fmt: skip

    async def draw_secret(self) -> None:
        node = self.brokers[IDS[0]].ours
        node.write_config()
        code, said = await run_to_end(
            [*node.start_command()[:3], "format", "--config", str(node.config_file),
             "--ignore-formatted", "--cluster-secret"]
        )  # fmt: skip
        assert code == 0, said

    async def lead_metadata_by(self, broker: int) -> None:
        """Have one broker lead all of the remote metadata, by Kafka's own tool."""
        others = [one for one in IDS if one != broker]
        plan = {
            "version": 1,
            "partitions": [
                {"topic": REMOTE_METADATA, "partition": one, "replicas": [broker, *others]}
                for one in range(METADATA_PARTITIONS)
            ],
        }
        file = self.directory / "plan.json"
        file.write_text(json.dumps(plan))
        said = await asyncio.to_thread(
            kafka_tool, "reassign-partitions", "--bootstrap-server", self.servers,
            "--reassignment-json-file", str(file), "--execute",
        )  # fmt: skip
        print(said)
        tools = admin(self.servers)
        parts = [TopicPartition(REMOTE_METADATA, one) for one in range(METADATA_PARTITIONS)]

        def is_led() -> bool:
            with suppress(KafkaException):
                tools.elect_leaders(ElectionType.PREFERRED, parts).result(30)
                return {self.leader(REMOTE_METADATA, one.partition) for one in parts} == {broker}
            return False

        await until_asked(is_led, f"{broker} leads {REMOTE_METADATA}", deadline_s=PATIENCE_S)

    def transact(self) -> list[bytes]:
        """A committed and an aborted transaction; what readers shall see."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": "mover"})
        producer.init_transactions(60)
        for deed in ("commit", "abort", "commit again"):
            producer.begin_transaction()
            for number in range(3):
                producer.produce(MOVED, b"%s %d" % (deed.encode(), number), partition=0)
            if deed == "abort":
                producer.flush(30)
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        return [b"%s %d" % (one, n) for one in (b"commit", b"commit again") for n in range(3)]

    async def controller_is(self, node_id: int, *, ours: bool) -> None:
        """Replace a controller, and wait until it has what the others have."""
        place = self.controllers[node_id]
        node = place.ours if ours else place.kafka
        await place.give_to(node)
        self.quorum.controllers[node_id] = node
        await self.quorum.settled()

    async def broker_is(self, node_id: int, *, ours: bool) -> None:
        """Replace a broker, and wait until all its replicas are in sync."""
        place = self.brokers[node_id]
        await place.give_to(place.ours if ours else place.kafka)
        await self.until_all_serve()
        await self.until_in_sync()


@asynccontextmanager
async def kafkas_cluster(directory: Path) -> AsyncIterator[TakeOver]:
    """Six nodes of Kafka, started; none is left running."""
    cluster = TakeOver(directory)
    async with cluster.quorum:
        try:
            await cluster.start()
            yield cluster
        finally:
            cluster.close()
            for place in (*cluster.controllers.values(), *cluster.brokers.values()):
                print(f"--- node {place.node.node_id}\n{place.node.log_tail(40)}")
