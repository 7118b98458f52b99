"""Replicas move between the log directories of a broker that is written and read all the time.

Only a real process shows that Kafka's own tool, clients and the tier continue with the log that
took the place of the one before, that a kill leaves one of the two, and that the directory can be
taken away in the end.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import ROOT, BrokerProcess, until
from tests.support.brokers.tiered_topics import create
from tests.support.brokers.traffic import Lane, Writing, value_of
from tests.support.kafka.tools import kafka_tool, require_kafka_tools

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=180)]

MakeBroker = Callable[..., BrokerProcess]
RECORDS = [(b"k", b"%d" % number + bytes(1_000)) for number in range(500)]
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
}


class Node:
    """A broker with the directories `logs`, which has the metadata, and `second`."""

    def __init__(self, make_broker: MakeBroker, **options: object) -> None:
        self.broker = make_broker(**options)
        first = self.broker.log_directory
        self.paths = [first, self.broker.directory / "second"]
        self.broker.settings["metadata.log.dir"] = str(first)
        self.use(*self.paths)
        formatted = self.broker.format()
        assert formatted.returncode == 0, formatted.stderr
        self.broker.start()
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def use(self, *paths: Path) -> None:
        self.broker.settings["log.dirs"] = ",".join(map(str, paths))

    def create(self, topic: str, partitions: int = 1) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)

    def where(self, topic: str, partition: int = 0) -> int:
        found = [n for n, p in enumerate(self.paths) if (p / f"{topic}-{partition}").is_dir()]
        assert len(found) == 1, found
        return found[0]

    def settled_at(self, target: int, topic: str, partition: int = 0) -> None:
        name = f"{topic}-{partition}"

        def is_there() -> bool:  # between the two renames it is nowhere
            return (self.paths[target] / name).is_dir() and not (
                self.paths[1 - target] / name
            ).exists()

        until(is_there, f"{topic}-{partition} is in {self.paths[target]}")
        assert self.where(topic, partition) == target

    def tiered_away(self, topic: str, count: int) -> None:
        """Wait until so many segments are in the store, and the active one alone is here."""

        def is_away() -> bool:
            local = list((self.paths[self.where(topic)] / f"{topic}-0").glob("*.log"))
            return len(local) == 1 and len(self.broker.remote_segments(topic)) >= count

        until(is_away, f"{count} segments of {topic}-0 are remote, and local no more")

    def reassign(self, mode: str, plan: Path) -> str:
        return kafka_tool(
            "reassign-partitions", "--bootstrap-server", self.broker.bootstrap,
            "--reassignment-json-file", str(plan), mode,
        )  # fmt: skip

    def plan(self, target: int, *topics: str) -> Path:
        """A plan of Kafka's tool."""
        path = self.broker.directory / "plan.json"
        partitions = [
            {
                "topic": topic,
                "partition": 0,
                "replicas": [self.broker.node_id],
                "log_dirs": [str(self.paths[target])],
            }
            for topic in topics
        ]
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return path

    def drain(self, index: int) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "tidemark.cli", "directories", "drain", str(self.paths[index]),
             "--bootstrap-server", self.broker.bootstrap],
            capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
        )  # fmt: skip


@contextmanager
def written_all_the_time(broker: BrokerProcess, lane: Lane) -> Iterator[Writing]:
    """At the end all that was sent is acknowledged, each record at its own offset."""
    is_over = threading.Event()
    with Writing(broker, {lane: 0}) as writing:

        def write() -> None:
            while not is_over.is_set():
                writing.send(lane, 5)
                writing.poll(0.01)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield writing
        finally:
            is_over.set()
            thread.join()
        writing.flush()


@pytest.mark.jvm
def test_kafkas_tool_moves_replicas_that_are_written_all_the_time(make_broker: MakeBroker) -> None:
    require_kafka_tools()
    node = Node(make_broker)
    node.create("t")
    with written_all_the_time(node.broker, ("t", 0)) as writing:
        for _ in range(2):
            target, known = 1 - node.where("t"), writing.acknowledged["t", 0]
            plan = node.plan(target, "t")
            shown = node.reassign("--execute", plan)
            assert "Successfully started moving log directory" in shown, shown
            node.settled_at(target, "t")
            shown = node.reassign("--verify", plan)
            assert "completed successfully" in shown, shown
            until(lambda known=known: writing.acknowledged["t", 0] > known, "writing continues")
    records = read_all(node.broker, "t")
    assert len(records) == writing.sent["t", 0] > 0
    for offset, (at, _, value) in enumerate(records):
        assert (at, value) == (offset, value_of(("t", 0), offset))


def test_kafka_python_moves_a_replica(make_broker: MakeBroker) -> None:
    node = Node(make_broker)
    node.create("t")
    produce(node.broker, "t", RECORDS)
    target = 1 - node.where("t")
    admin = kafka.KafkaAdminClient(bootstrap_servers=node.broker.bootstrap)
    try:
        replica = ("t", 0, node.broker.node_id)
        (answer,) = admin.alter_replica_log_dirs({replica: str(node.paths[target])}).values()
        assert answer.errno == 0
        node.settled_at(target, "t")
        (answer,) = admin.alter_replica_log_dirs({replica: "/nowhere"}).values()
        assert answer.errno == 57  # LOG_DIR_NOT_FOUND
    finally:
        admin.close()
    assert [(key, value) for _, key, value in read_all(node.broker, "t")] == RECORDS


def test_a_tiered_replica_moves_and_is_copied_and_read_on(make_broker: MakeBroker) -> None:
    node = Node(make_broker, tiered=True)
    create(node.broker, "t", **TIERED)
    values = [(None, b"%d" % number + bytes(100_000)) for number in range(45)]
    produce(node.broker, "t", values)
    node.tiered_away("t", 4)
    target = 1 - node.where("t")
    assert node.drain(1 - target).returncode == 0
    assert node.where("t") == target
    more = [(None, b"%d" % number + bytes(100_000)) for number in range(45, 90)]
    produce(node.broker, "t", more)
    node.tiered_away("t", 8)
    assert [value for _, _, value in read_all(node.broker, "t")] == [v for _, v in values + more]
    assert node.broker.health()["status"] == "green"


def test_a_drained_directory_can_be_taken_away(make_broker: MakeBroker) -> None:
    node = Node(make_broker)
    node.create("t", 6)
    for partition in range(6):
        produce(node.broker, "t", RECORDS, partition)
    drained = node.drain(1)
    assert drained.returncode == 0, drained.stderr
    assert "has no replica: take it out of log.dirs" in drained.stdout
    for partition in range(6):
        assert node.where("t", partition) == 0
    assert node.broker.terminate() == 0
    node.use(node.paths[0])
    node.paths[1].rename(node.paths[1].with_name("away"))
    node.broker.start()
    node.create("u", 2)
    produce(node.broker, "u", RECORDS[:3], 1)
    for partition in range(6):
        assert len(read_all(node.broker, "t", partition)) == len(RECORDS)
    assert node.broker.health()["status"] == "green", node.broker.health()


def test_a_killed_broker_continues_with_its_moves(make_broker: MakeBroker) -> None:
    node = Node(make_broker)
    node.broker.terminate()
    node.broker.settings["replica.alter.log.dirs.io.max.bytes.per.second"] = "1000"
    node.broker.start()
    node.create("t")
    produce(node.broker, "t", [(None, bytes(100_000))] * 45)
    target = 1 - node.where("t")
    moving = subprocess.Popen(
        [sys.executable, "-m", "tidemark.cli", "directories", "drain",
         str(node.paths[1 - target]), "--bootstrap-server", node.broker.bootstrap],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: list(node.paths[target].glob("t-0.*-future")), "the move begins")
    moving.kill()
    moving.wait()
    node.broker.kill()
    assert node.where("t") == 1 - target
    del node.broker.settings["replica.alter.log.dirs.io.max.bytes.per.second"]
    node.broker.start()
    node.settled_at(target, "t")
    assert len(read_all(node.broker, "t")) == 45
    assert not list(node.paths[target].glob("*-future"))
