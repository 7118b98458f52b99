"""A Kafka Connect worker and a word count of Kafka Streams, as they come from Maven."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.brokers.process import free_ports, until
from tests.support.groups import builds
from tests.support.groups.world import SETTINGS, World, kafka_world, our_world
from tests.support.kafka.tools import require_kafka_tools

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.long(seconds=60)]


@pytest.fixture(params=["tidemark", "kafka"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each of the two brokers."""
    reason = builds.apps_are_missing()
    if reason is not None:
        pytest.skip(reason)
    if request.param == "kafka":
        require_kafka_tools()
    make = kafka_world if request.param == "kafka" else our_world
    made, end = make(tmp_path / "broker", SETTINGS)
    try:
        yield made.ready()
    finally:
        end()


@contextmanager
def running(directory: Path, main: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A JVM with one program; SIGTERM at the end, and no longer than that takes."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "program.log").open("wb") as log:
        process = subprocess.Popen(
            builds.apps_command(main, *arguments), stdout=log, stderr=log, cwd=directory
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()
            print((directory / "program.log").read_text(errors="replace")[-3000:])


def test_connect_copies_a_file_through_a_topic_and_resumes_after_a_restart(
    world: World, tmp_path: Path
) -> None:
    directory = tmp_path / "connect"
    directory.mkdir()
    source, sink = directory / "in.txt", directory / "out.txt"
    world.create("lines", 2)
    (port,) = free_ports(1)
    common = "org.apache.kafka.connect.file.FileStream"
    files = {
        "worker": {
            "bootstrap.servers": world.bootstrap,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(directory / "offsets"),
            "offset.flush.interval.ms": "500",
            "listeners": f"http://127.0.0.1:{port}",
            "plugin.discovery": "service_load",
        },
        "source": {
            "name": "from-file",
            "connector.class": f"{common}SourceConnector",
            "file": str(source),
            "topic": "lines",
        },
        "sink": {
            "name": "to-file",
            "connector.class": f"{common}SinkConnector",
            "file": str(sink),
            "topics": "lines",
        },
    }
    for name, settings in files.items():
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (directory / f"{name}.properties").write_text(text)
    arguments = [str(directory / f"{name}.properties") for name in files]
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    wanted: list[str] = []  # grows with each life
    for life in range(2):
        fresh = [f"life {life} line {number}" for number in range(50)]
        wanted += fresh
        with source.open("a") as lines:
            lines.write("".join(f"{line}\n" for line in fresh))
        with running(directory, main, *arguments):
            until(partial(_has_lines, sink, len(wanted)), "the lines have arrived")
            until(partial(_has_committed, world, len(wanted)), "they are committed")
    assert sorted(sink.read_text().splitlines()) == sorted(wanted), "a line came twice"


def _has_lines(file: Path, count: int) -> bool:
    return file.exists() and len(file.read_text().splitlines()) >= count


def _has_committed(world: World, count: int) -> bool:
    return _committed(world, "connect-to-file") == count


def _committed(world: World, group: str) -> int:
    return sum(offset for offset, _ in world.committed(group).values())


def test_streams_counts_words_and_continues_after_a_restart(world: World, tmp_path: Path) -> None:
    for topic in ("text", "counts"):
        world.create(topic, 2)
    producer = Producer({"bootstrap.servers": world.bootstrap})
    counts: dict[str, int] = {}
    consumer = Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["counts"])

    def counted(times: int) -> bool:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            counts[message.key().decode()] = int(message.value())
        return counts == {"the": 2 * times, "tide": times, "and": times, "mark": times}

    try:
        for life in (1, 2):
            for _ in range(10):
                producer.produce("text", value="the tide and the mark")
            producer.flush(20)
            with running(
                tmp_path / f"life-{life}", "WordCount", world.bootstrap, str(tmp_path / "state")
            ):
                until(lambda n=life: counted(10 * n), f"words of life {life} are counted")  # type: ignore[misc]
                until(lambda n=life: _committed(world, "word-count") >= 10 * n, "and committed")  # type: ignore[misc]
    finally:
        consumer.close()
