"""A log directory that is missing, empty, or of another time.

Nothing begins again, and remedies.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess

PARTITIONS = range(6)
MakeBroker = Callable[..., BrokerProcess]
NO_LEADER = "_UNKNOWN_PARTITION"  # how librdkafka shows it
RECORDS = [(b"k", b"%d" % number) for number in range(10)]


class Node:
    """A broker with two log directories, the metadata in the first."""

    def __init__(self, make_broker: MakeBroker) -> None:
        self.broker = make_broker()
        self.second = self.broker.directory / "second"
        self.broker.settings["log.dirs"] = f"{self.broker.directory / 'logs'},{self.second}"
        formatted = self.broker.format()
        assert formatted.returncode == 0, formatted.stderr
        self.broker.start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic("t", len(PARTITIONS), 1)])["t"].result(30)
        for partition in PARTITIONS:
            produce(self.broker, "t", RECORDS, partition)
        self.there = {p for p in PARTITIONS if (self.second / f"t-{p}").is_dir()}
        assert 0 < len(self.there) < len(PARTITIONS)

    def health(self) -> dict[str, object]:
        page = f"http://127.0.0.1:{self.broker.http_port}/health"
        with urllib.request.urlopen(page, timeout=10) as answer:
            return json.load(answer)

    def tool(self, *arguments: str, group: str = "directories") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidemark.cli", group, *arguments]
        return subprocess.run(
            [*command, "--config", str(self.broker.config_file)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
            cwd=Path(__file__).parents[2],
        )

    def missing(self) -> str:
        (row,) = [
            r for r in self.tool("list").stdout.splitlines() if r.rstrip().endswith("missing")
        ]
        return row.split()[0]

    def ends(self) -> dict[int, int | str]:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "g"})
        found: dict[int, int | str] = {}
        for partition in PARTITIONS:
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition("t", partition), 10)
                found[partition] = high if low == 0 else f"{low}-{high}"
            except KafkaException as error:
                found[partition] = error.args[0].name()
        consumer.close()
        return found

    def expected(self, of_second: int | str) -> dict[int, int | str]:
        return {p: of_second if p in self.there else len(RECORDS) for p in PARTITIONS}


@pytest.fixture
def node(make_broker: MakeBroker) -> Node:
    return Node(make_broker)


@pytest.mark.parametrize(
    "in_its_place",
    [
        "nothing",
        pytest.param("an empty directory", marks=pytest.mark.long(seconds=5)),
        pytest.param("a file", marks=pytest.mark.long(seconds=5)),
    ],
)
def test_a_missing_directory_hides_its_partitions_until_it_is_back(
    node: Node, tmp_path: Path, in_its_place: str
) -> None:
    node.broker.kill()
    node.second.rename(tmp_path / "away")
    if in_its_place == "an empty directory":
        node.second.mkdir()
    elif in_its_place == "a file":
        node.second.write_text("not a directory")
    for _ in range(2):  # the second start finds what the first one left
        node.broker.start()
        assert node.ends() == node.expected(NO_LEADER)
        health = node.health()
        assert health["status"] == "red"
        assert str(node.second) in str(health["reasons"])
        inspected = node.tool("inspect", "t", str(min(node.there)), group="log")
        assert (inspected.returncode, "directories forget" in inspected.stdout) == (0, True)
        refused = node.tool("accept", "t", str(min(node.there)), "--yes", group="log")
        assert (refused.returncode, "is missing" in refused.stderr) == (1, True)
        node.broker.kill()
    if in_its_place == "a file":
        assert node.second.read_text() == "not a directory"
        node.second.unlink()
    elif node.second.exists():
        assert os.listdir(node.second) == []
        node.second.rmdir()
    (tmp_path / "away").rename(node.second)
    node.broker.start()
    assert node.health()["status"] == "green"
    for partition in node.there:
        assert [value for _, _, value in read_all(node.broker, "t", partition)] == [
            value for _, value in RECORDS
        ]


def test_an_old_metadata_directory_is_refused(node: Node, tmp_path: Path) -> None:
    assert node.broker.terminate() == 0
    logs = node.broker.directory / "logs"
    shutil.copytree(logs, tmp_path / "old")
    node.broker.start()
    assert node.broker.terminate() == 0
    shutil.rmtree(logs)
    (tmp_path / "old").rename(logs)
    refused = node.broker.start_to_end()
    assert refused.returncode == 1
    assert "the metadata directory is an older copy" in refused.stderr
    # There is no newer one: the person says so.
    (row,) = [r for r in node.tool("list").stdout.splitlines() if "an older copy" in r]
    assert str(node.second) in row
    accepted = node.tool("accept", row.split()[0], "--yes")
    assert accepted.returncode == 0, accepted.stderr
    node.broker.start()
    assert node.health()["status"] == "green"
    assert node.ends() == node.expected(len(RECORDS))


def test_what_forgetting_takes_from_the_remote_store_is_said(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    node = Node(lambda: make_broker(tiered=True))
    admin = AdminClient({"bootstrap.servers": node.broker.bootstrap})
    tiered = {"remote.storage.enable": "true"}
    admin.create_topics([NewTopic("tiered", 4, 1, config=tiered)])["tiered"].result(30)
    assert node.broker.terminate() == 0
    there = sorted(p.name for p in node.second.glob("tiered-*"))
    assert there
    node.second.rename(tmp_path / "away")
    asked = node.tool("forget", node.missing())
    assert asked.returncode == 2
    assert f"{len(there)} of them are tiered ({', '.join(there)})" in asked.stdout


def test_an_old_copy_of_a_directory_is_offline_until_it_is_accepted(
    node: Node, tmp_path: Path
) -> None:
    assert node.broker.terminate() == 0
    shutil.copytree(node.second, tmp_path / "old")
    node.broker.start()
    for partition in PARTITIONS:
        produce(node.broker, "t", RECORDS, partition)
    assert node.broker.terminate() == 0
    shutil.rmtree(node.second)
    (tmp_path / "old").rename(node.second)
    node.broker.start()
    ends = node.ends()
    assert all(ends[p] == NO_LEADER for p in node.there)
    assert "another time" in str(node.health()["reasons"])
    assert node.tool("list").stdout.count("another time") == 1
    directory_id = next(r for r in node.tool("list").stdout.splitlines() if "another" in r).split()
    running = node.tool("accept", directory_id[0], "--yes")
    assert running.returncode == 1
    assert "already running" in running.stderr
    assert node.broker.terminate() == 0
    assert node.tool("accept", directory_id[0]).returncode == 2
    accepted = node.tool("accept", directory_id[0], "--yes")
    assert accepted.returncode == 0, accepted.stderr
    node.broker.start()
    assert node.health()["status"] == "green"
    assert node.ends() == {p: 10 if p in node.there else 20 for p in PARTITIONS}


def test_a_forgotten_directory_begins_anew_and_its_old_copy_is_put_aside(
    node: Node, tmp_path: Path
) -> None:
    assert node.broker.terminate() == 0
    node.second.rename(tmp_path / "away")
    node.broker.start()
    directory_id = node.missing()
    refused = node.tool("forget", directory_id, "--yes")
    assert refused.returncode == 1
    assert "already running" in refused.stderr
    assert node.broker.terminate() == 0
    no = node.tool("forget", directory_id)
    assert no.returncode == 2
    assert all(f"t-{p}" in no.stdout for p in node.there)
    done = node.tool("forget", directory_id, "--yes")
    assert done.returncode == 0, done.stderr
    assert f"{len(node.there)} partitions had their last copy there" in done.stdout
    # Nothing begins again before a person says how much is given up.
    node.broker.start()
    assert node.ends() == node.expected(NO_LEADER)
    assert node.broker.terminate() == 0
    done = node.tool("forget", "lost", "--records-given-up", "many", "--yes")
    assert (done.returncode, "neither a number" in done.stderr) == (2, True)
    done = node.tool("forget", "lost", "--records-given-up", str(len(RECORDS)), "--yes")
    assert done.returncode == 0, done.stderr
    assert f"{len(RECORDS)} committed records are lost" in done.stdout
    node.broker.start()
    assert node.health()["status"] == "green"
    assert node.ends() == node.expected(0)
    produce(node.broker, "t", RECORDS[:3], min(node.there))
    assert node.broker.terminate() == 0
    # The lost disk comes back as a third directory: what was given up stays aside.
    third = node.broker.directory / "third"
    (tmp_path / "away").rename(third)
    node.broker.settings["log.dirs"] += f",{third}"
    node.broker.start()
    health = node.health()
    assert health["status"] == "yellow"
    assert str(health["reasons"]).count("was put aside by this start") == len(node.there)
    assert node.ends() == node.expected(0) | {min(node.there): 3}
    aside = [name for name in os.listdir(third) if name.endswith("-stray")]
    assert len(aside) == len(node.there)


def test_what_is_not_missing_is_not_forgotten(node: Node) -> None:
    rows = [
        r.split() for r in node.tool("list").stdout.splitlines() if r.rstrip().endswith("there")
    ]
    assert len(rows) == 2
    refused = node.tool("forget", rows[1][0], "--yes")
    assert (refused.returncode, "is there" in refused.stderr) == (1, True)
    unknown = node.tool("forget", "AAAAAAAAAAAAAAAAAAAAAw", "--yes")
    assert (unknown.returncode, "is not known" in unknown.stderr) == (1, True)
    nonsense = node.tool("forget", "what?", "--yes")
    assert (nonsense.returncode, "no directory id" in nonsense.stderr) == (1, True)


def test_a_lost_metadata_log_is_not_begun_anew(node: Node) -> None:
    node.broker.kill()
    metadata = node.broker.directory / "logs" / "__cluster_metadata-0"
    kept = {path.name: path.read_bytes() for path in metadata.iterdir()}
    for name in kept:
        if name != "00000000000000000000-0000000000.checkpoint":  # the voters, as formatted
            (metadata / name).unlink()
    refused = node.broker.start_to_end()
    assert refused.returncode == 1
    assert "the metadata directory is an older copy" in refused.stderr
    for name, content in kept.items():
        (metadata / name).write_bytes(content)
    node.broker.start()
    assert node.ends() == node.expected(len(RECORDS))
