"""Pages for operators, typed in a clean shell: operations, remote stores, taking over Kafka.

Only real processes show that a command is right as it stands. What needs more than one machine
has is listed, with the reason, in `tests/support/brokers/untyped.py`.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.page_reader import Reader, blocks
from tests.support.brokers.process import ROOT, free_dev_port
from tests.support.kafka.peer import KafkaPeer
from tests.support.kafka.tools import PEERS, require_kafka_tools

if TYPE_CHECKING:
    from tests.support.stores.s3 import S3Endpoint

pytestmark = [pytest.mark.lasts(seconds=40), pytest.mark.timeout(600)]

PROGRAMS = Path(sys.executable).parent
GROUPS = "## Consumer groups\n"


def test_operations(tmp_path: Path) -> None:
    port, other = free_dev_port(), free_dev_port()
    ports = {
        "9092": str(port), "9093": str(port + 1), "9464": str(port + 372), "19092": str(other),
    }  # fmt: skip
    reader = Reader(tmp_path, PROGRAMS, ports)
    page = (ROOT / "docs" / "operations.md").read_text()
    before = page.partition(GROUPS)[0].count("\n```") // 2
    of_page = blocks(ROOT / "docs" / "operations.md")
    try:
        for number, block in enumerate(of_page):
            if number == before:  # "the first client that asks for a group makes it"
                make_group(f"127.0.0.1:{port}")
            reader.follow(*block)
    finally:
        reader.end()
    assert len(reader.started) == 2


def make_group(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    consumer.close()


def test_remote_stores(tmp_path: Path, s3: "S3Endpoint") -> None:
    """S3 and its credentials are where boto3 looks for them; the bucket is one that is there."""
    bucket = s3.new_bucket()
    machine = {
        "AWS_ENDPOINT_URL": s3.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    reader = Reader(tmp_path, PROGRAMS, {"logs": bucket}, machine=machine)
    reader.read(blocks(ROOT / "docs" / "remote-stores.md"))
    assert any(" promises kept, 0 broken" in line for line in reader.printed_lines())
    assert [line for line in reader.printed_lines() if "unknown setting" in line] == []


def test_taking_over(tmp_path: Path) -> None:
    """One node of Kafka stands for all; Kafka's commands are on the PATH."""
    require_kafka_tools()
    kafka = KafkaPeer(tmp_path / "kafka")
    kafka.start()
    try:
        topic = NewTopic("T", 1, 1, config={"remote.storage.enable": "true"})
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([topic])["T"].result(30)
        hosts = {
            "h11:9092,h12:9092,h13:9092": kafka.bootstrap,
            "h1:9093,h2:9093,h3:9093": f"127.0.0.1:{kafka.controller_port}",
        }
        reader = Reader(tmp_path, PROGRAMS, hosts, machine={"PATH": str(kafka_commands(tmp_path))})
        reader.read(blocks(ROOT / "docs" / "taking-over.md"))
        assert any("CurrentVoters" in line or "Leader" in line for line in reader.printed_lines())
    finally:
        kafka.stop()


def kafka_commands(directory: Path) -> Path:
    """Commands under the names that Kafka's distribution has."""
    place = directory / "kafka-bin"
    place.mkdir()
    for tool in ("features", "configs", "metadata-quorum", "topics"):
        file = place / f"kafka-{tool}.sh"
        file.write_text(f'#!/bin/sh\nexec {PEERS}/kafka tool {tool} "$@"\n')
        file.chmod(0o755)
    return place
