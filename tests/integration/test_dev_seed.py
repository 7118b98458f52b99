"""`tidemark dev --seed`: topics and records are there before the broker says how to continue."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.support.brokers.process import ROOT, environment, free_ports, until

pytestmark = pytest.mark.lasts(seconds=25)

READY = "Stop it with Ctrl-C"
SEED = """
topics:
  - name: orders
    partitions: 3
    configs:
      segment.ms: 86400000
    records:
      - orders.jsonl
      - orders.csv
  - name: empty
  - name: gone
    configs: {retention.ms: 1000}
    records: old.csv
"""


def write_seed(root: Path, **files: str) -> Path:
    rows = [{"key": f"k{n % 7}", "value": {"n": n}, "headers": {"h": "x"}} for n in range(500)]
    written: Mapping[str, str] = {
        "topics.yaml": SEED,
        "orders.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "old.csv": "timestamp\n-2h\n",
        "orders.csv": "value,partition,timestamp\nlast,2,1700000000000\n",
        **{name.replace("__", "."): text for name, text in files.items()},
    }
    for name, text in written.items():
        (root / name).write_text(text)
    return root / "topics.yaml"


@contextmanager
def dev(root: Path, seed: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "tidemark.cli", "dev", "--data", str(root / "data")]
    options = ["--port", str(port), "--seed", str(seed), "--override", "tidemark.http.listener="]
    with (root / "out").open("ab") as out, (root / "err").open("ab") as err:
        child = subprocess.Popen(
            [*command, *options], cwd=ROOT, stdout=out, stderr=err, env=environment()
        )
    try:
        yield child
    finally:
        child.kill()
        child.wait(30)


def said(root: Path) -> str:
    return (root / "out").read_text()


def read_all(servers: str, topic: str) -> list[tuple[int, int, bytes | None, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False}
    )
    found = []
    try:
        for partition in range(3):
            place = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=30)
            consumer.assign([place])
            messages = consumer.consume(end, 30) if end else []
            assert len(messages) == end
            found += [(one.partition(), one.offset(), one.key(), one.value()) for one in messages]
        return found
    finally:
        consumer.close()


def test_a_seed_is_there_when_the_broker_says_so_and_is_sown_once(tmp_path: Path) -> None:
    seed, (port,) = write_seed(tmp_path), free_ports(1)
    servers = f"127.0.0.1:{port}"
    with dev(tmp_path, seed, port) as child:
        until(lambda: READY in said(tmp_path), "the first start")
        assert "topic orders is seeded: partitions=3 records=501" in said(tmp_path)
        assert "topic empty is seeded: partitions=1 records=0" in said(tmp_path)
        first = read_all(servers, "orders")
        assert len(first) == 501
        assert {json.loads(value)["n"] for *_, key, value in first if key} == set(range(500))
        assert next(row for row in first if row[3] == b"last")[0] == 2
        by_key = {(key, partition) for partition, _, key, _ in first if key}
        assert len(by_key) == 7, "a key is in one partition"
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
        admin = AdminClient({"bootstrap.servers": servers})
        configs = admin.describe_configs([resource])[resource].result(30)
        assert configs["segment.ms"].value == "86400000"
        assert configs["retention.ms"].value == "-1", "the record of 2023 stays"
        gone = "warning: topic gone: 1 of 1 records are older than its retention.ms=1000"
        assert gone in said(tmp_path)
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0
    assert "stopped: node_id=1 (" in (tmp_path / "data" / "server.log").read_text()
    with dev(tmp_path, seed, port):
        until(lambda: said(tmp_path).count(READY) == 2, "the second start")
        assert "topic orders exists already: left alone" in said(tmp_path)
        assert read_all(servers, "orders") == first


def test_what_a_broker_refuses_ends_it_with_the_line_and_leaves_no_topic(tmp_path: Path) -> None:
    """Too large for its topic is a record that no look at the files can find."""
    text = SEED.replace("segment.ms: 86400000", "max.message.bytes: 1000")
    large = json.dumps({"value": "x" * 2_000}) + "\n"
    seed, (port,) = write_seed(tmp_path, topics__yaml=text), free_ports(1)
    # The small ones are too much for the topic as well, where they stand in one batch.
    small = json.dumps({"value": "x" * 400, "partition": 0}) + "\n"
    (tmp_path / "orders.jsonl").write_text(small * 9 + large)
    with dev(tmp_path, seed, port) as child:
        assert child.wait(60) == 1
    error = (tmp_path / "err").read_text()
    assert f"--seed: {tmp_path}/orders.jsonl:10: the broker refuses the record" in error
    assert READY not in said(tmp_path)
    (tmp_path / "orders.jsonl").write_text(small * 9)
    with dev(tmp_path, seed, port):
        until(lambda: READY in said(tmp_path), "a start with a seed that fits")
    assert "topic orders is seeded: partitions=3 records=10" in said(tmp_path), said(tmp_path)


def test_a_wrong_file_ends_the_start_before_anything_is_written(tmp_path: Path) -> None:
    seed, (port,) = write_seed(tmp_path, orders__csv="value,partition\nx,3\n"), free_ports(1)
    with dev(tmp_path, seed, port) as child:
        assert child.wait(60) == 1
    error = (tmp_path / "err").read_text()
    assert error == f"tidemark: {tmp_path}/orders.csv:2: partition=3: allowed is 0 to 2\n"
    assert not (tmp_path / "data").exists()


def is_half_full(root: Path) -> bool:
    return sum(path.stat().st_size for path in (root / "data/logs").glob("orders-*/*.log")) > 50_000


@pytest.mark.smoke
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_seeding_is_done_whole_by_the_next_start(
    tmp_path: Path, number: signal.Signals
) -> None:
    """With a producer that has more to do than is done when the signal comes."""
    text = SEED.replace("orders.csv", "other.csv")
    seed, (port,) = write_seed(tmp_path, topics__yaml=text, other__csv="value\n"), free_ports(1)
    count = 300_000
    (tmp_path / "orders.jsonl").write_text(json.dumps({"value": "x" * 50}) + "\n")
    (tmp_path / "other.csv").write_text("value\n" + f"{'x' * 50}\n" * count)
    with dev(tmp_path, seed, port) as child:
        until(lambda: is_half_full(tmp_path), "some of the records")
        child.send_signal(number)
        child.wait(60)
    assert "orders is seeded" not in said(tmp_path)
    assert (tmp_path / "data" / "seeding.json").exists()
    with dev(tmp_path, seed, port):
        until(lambda: READY in said(tmp_path), "the next start")
        assert "topic orders was seeded in part only, by a start that ended" in said(tmp_path)
        assert f"topic orders is seeded: partitions=3 records={count + 1}" in said(tmp_path)
        consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "none"})
        places = [TopicPartition("orders", partition) for partition in range(3)]
        ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        consumer.close()
        assert sum(ends) == count + 1
    assert not (tmp_path / "data" / "seeding.json").exists()


@pytest.mark.smoke
def test_a_note_of_a_topic_that_somebody_else_made_deletes_nothing(tmp_path: Path) -> None:
    seed, (port,) = write_seed(tmp_path), free_ports(1)
    for topic_id in ("", "AAAAAAAAAAAAAAAAAAAAAQ"):
        with dev(tmp_path, seed, port) as child:
            until(lambda: READY in said(tmp_path), "the first start")
            child.send_signal(signal.SIGINT)
            assert child.wait(30) == 0
        note = json.dumps({"topic": "orders", "topic_id": topic_id})
        (tmp_path / "data" / "seeding.json").write_text(note)
        (tmp_path / "out").write_text("")
    with dev(tmp_path, seed, port):
        until(lambda: READY in said(tmp_path), "a start that finds the note")
        assert "topic orders exists already: left alone" in said(tmp_path)
        assert len(read_all(f"127.0.0.1:{port}", "orders")) == 501
    assert not (tmp_path / "data" / "seeding.json").exists()


@pytest.mark.long(seconds=5)
def test_a_config_that_does_not_exist_is_refused_with_its_topic(tmp_path: Path) -> None:
    text = SEED.replace("segment.ms", "retention.mx")
    seed, (port,) = write_seed(tmp_path, topics__yaml=text), free_ports(1)
    with dev(tmp_path, seed, port) as child:
        assert child.wait(60) == 1
    assert f"--seed: {seed}:3: topic orders: unknown topic config retention.mx" in (
        (tmp_path / "err").read_text()
    )
