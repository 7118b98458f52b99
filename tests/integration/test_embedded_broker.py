"""`tidemark.Broker` in a test suite: life, clock, tier; with confluent-kafka as client."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Awaitable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

import tidemark
from tests.support.brokers.embedded import (
    assert_nothing_left,
    facts_in,
    is_running,
    log_start,
    pids_of,
    put,
    read,
    told,
)
from tests.support.brokers.process import until
from tests.support.worlds.waiting import until as in_the_loop
from tidemark.testing import KafkaContainer

T = TypeVar("T")

pytestmark = pytest.mark.lasts(seconds=30)

DAY_MS = 86_400_000
TIERED = {"remote.storage.enable": "true"}


@pytest.fixture(scope="module")
def shared() -> Iterator[tidemark.Broker]:
    """Use topics of your own, and leave its clock alone."""
    with tidemark.Broker(topics=["names", {"counts": 3}]) as broker:
        yield broker


def make_topic(broker: tidemark.Broker, name: str, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = broker.admin()
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(30)


@pytest.mark.smoke
def test_topics_are_there_when_it_is_started(shared: tidemark.Broker) -> None:
    topics = shared.admin().list_topics(timeout=30).topics
    assert {name: len(topics[name].partitions) for name in ("names", "counts")} == {
        "names": 1,
        "counts": 3,
    }


@pytest.mark.smoke
def test_it_has_a_page_to_look_at(shared: tidemark.Broker) -> None:
    """Only a real start finds a port that is not told, or a page that a test's broker lacks."""
    with urlopen(f"{shared.console_url}console/state.json", timeout=30) as answer:
        topics = {one["topic"] for one in json.load(answer)["partitions"]}
    assert {"names", "counts"} <= topics


@pytest.mark.parametrize("end", ["stop", "kill", "restart"])
def test_records_survive_each_end_at_the_same_address(shared: tidemark.Broker, end: str) -> None:
    topic, address = f"survives-{end}", shared.bootstrap_servers
    put(shared, topic, [b"before"])
    pids = pids_of(shared)
    getattr(shared, end)()
    assert not any(is_running(pid) for pid in pids[1:])
    assert shared.is_running == (end == "restart")
    assert shared.start().bootstrap_servers == address
    put(shared, topic, [b"after"])
    assert read(shared, topic, 2) == [b"before", b"after"]


def test_a_paused_broker_answers_when_it_continues(shared: tidemark.Broker) -> None:
    put(shared, "paused", [b"before"])
    producer = shared.producer()
    producer.list_topics(timeout=30)
    shared.pause()
    try:
        assert shared.is_running
        producer.produce("paused", b"meanwhile")
        with pytest.raises(KafkaException):
            producer.list_topics(timeout=0.5)
        assert producer.flush(0) == 1
    finally:
        shared.resume()
    assert producer.flush(30) == 0
    assert read(shared, "paused", 2) == [b"before", b"meanwhile"]


@pytest.mark.long(seconds=3)
def test_a_paused_broker_can_be_stopped(shared: tidemark.Broker) -> None:
    shared.pause()
    shared.restart()
    assert shared.status()["stage"] == "running"


def test_a_broker_that_dies_by_itself_is_noticed_and_started_again(
    shared: tidemark.Broker,
) -> None:
    pids = pids_of(shared)
    os.kill(pids[1], signal.SIGKILL)
    until(lambda: not shared.is_running, "the broker's end is noticed")
    assert not any(is_running(pid) for pid in pids[1:]), "its tier ends before anybody is told"
    with pytest.raises(tidemark.BrokerError, match=r"does not run; start\(\)"):
        shared.status()
    with pytest.raises(tidemark.BrokerError, match="does not run"):
        shared.pause()
    shared.stop()
    shared.start()
    assert shared.status()["stage"] == "running"


@pytest.mark.smoke
def test_reads_of_a_tiered_topic_come_from_the_store(shared: tidemark.Broker) -> None:
    make_topic(shared, "tides", **TIERED)
    values = [b"%d" % number for number in range(500)]
    put(shared, "tides", values)
    (found,) = shared.tier("tides")
    assert (found["copied_from"], found["copied_through"]) == (0, 499)
    assert (found["log_start_offset"], found["local_log_start_offset"]) == (0, 500)
    assert list((shared.data_dir / "remote-tier").rglob("*.log")) != []
    assert read(shared, "tides", 500) == values
    put(shared, "tides", [b"later"])
    (again,) = shared.tier("tides")
    assert (again["copied_from"], again["copied_through"]) == (500, 500)
    assert read(shared, "tides", 501) == [*values, b"later"]
    shared.kill()
    shared.start()
    assert read(shared, "tides", 501) == [*values, b"later"]


def test_tiering_says_what_keeps_it_from_it(shared: tidemark.Broker) -> None:
    make_topic(shared, "local-only")
    with pytest.raises(tidemark.BrokerError, match=r"remote\.storage\.enable=true"):
        shared.tier("local-only")
    with pytest.raises(tidemark.BrokerError, match="no topic 'nosuch'"):
        shared.tier("nosuch")


def test_days_pass_for_records_and_their_copies_and_stay_over_restarts() -> None:
    with tidemark.Broker(settings={"log.retention.hours": 24 * 7}) as broker:
        make_topic(broker, "kept", retention_ms=str(30 * DAY_MS))
        make_topic(broker, "gone")
        make_topic(broker, "far", **TIERED)
        make_topic(broker, "not-yet-copied", **TIERED)
        for topic in ("kept", "gone", "far", "not-yet-copied"):
            put(broker, topic, [b"old"])
        broker.tier("far")
        before_ms = broker.status()["wall_ms"]
        broker.advance("6d23h")
        assert [log_start(broker, topic) for topic in ("kept", "gone", "far")] == [0, 0, 0]
        broker.advance(timedelta(hours=2))
        starts = {topic: log_start(broker, topic) for topic in ("kept", "gone", "far")}
        assert starts == {"kept": 0, "gone": 1, "far": 1}
        assert log_start(broker, "not-yet-copied") == 1  # it was rolled, copied and expired
        broker.restart()
        assert broker.status()["wall_ms"] - before_ms >= 7 * DAY_MS
        make_topic(broker, "stamped", message_timestamp_type="LogAppendTime")
        put(broker, "stamped", [b"new"])
        consumer = broker.consumer()
        consumer.assign([TopicPartition("stamped", 0, 0)])
        (message,) = consumer.consume(1, 30)
        assert message.timestamp()[1] - before_ms >= 7 * DAY_MS
        consumer.close()


def test_time_rolls_segments_and_is_checked_in_records() -> None:
    with tidemark.Broker() as broker:
        day = str(DAY_MS)
        make_topic(broker, "rolls", segment_ms=day, message_timestamp_before_max_ms=day)
        put(broker, "rolls", [b"one"])
        directory = broker.data_dir / "logs" / "rolls-0"
        assert len(list(directory.glob("*.log"))) == 1
        broker.advance("25h")
        assert max(path.name for path in directory.glob("*.log")) == f"{1:020}.log"
        refused: list[object] = []
        producer = broker.producer()
        producer.produce("rolls", b"of yesterday", callback=lambda error, _: refused.append(error))
        assert producer.flush(30) == 0
        assert "INVALID_TIMESTAMP" in str(refused[0])
        with pytest.raises(ValueError, match="1h30m"):
            broker.advance("yesterday")
        with pytest.raises(tidemark.BrokerError, match="time goes forward only"):
            broker.control("advance", ms=-1)


def test_what_is_due_for_compaction_is_compacted_when_days_have_passed() -> None:
    with tidemark.Broker() as broker:
        day = str(DAY_MS)
        config = {"max_compaction_lag_ms": day, "delete_retention_ms": day}
        make_topic(broker, "latest", cleanup_policy="compact", **config)
        make_topic(broker, "other", cleanup_policy="compact")
        for topic in ("latest", "other"):
            producer = broker.producer()
            for value in (b"one", b"two", b"three", None):
                producer.produce(topic, value, key=b"same")
            producer.produce(topic, b"kept", key=b"another")
            assert producer.flush(30) == 0
        broker.advance("2d")
        assert read(broker, "latest", 2) == [None, b"kept"]
        producer.produce("latest", b"later", key=b"later")
        assert producer.flush(30) == 0
        broker.advance("2d")
        assert read(broker, "latest", 2) == [b"kept", b"later"]
        assert read(broker, "other", 5) == [b"one", b"two", b"three", None, b"kept"]


def test_a_given_directory_stays_and_another_broker_finds_its_records(tmp_path: Path) -> None:
    with tidemark.Broker(tmp_path / "data", topics={"kept": 2}) as broker:
        put(broker, "kept", [b"one"])
    assert (tmp_path / "data" / "broker.log").exists()
    with tidemark.Broker(tmp_path / "data", topics=["kept"]) as broker:
        assert read(broker, "kept", 1) == [b"one"]
        assert len(broker.admin().list_topics("kept", timeout=30).topics["kept"].partitions) == 2


def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    broker = tidemark.Broker(settings={"log.segment.bytes": "many"})
    with pytest.raises(tidemark.BrokerStartError, match=r"log\.segment\.bytes=many: must be"):
        broker.start()
    assert not broker.is_running
    blocked = tidemark.Broker(tmp_path / "data")
    with blocked, pytest.raises(tidemark.BrokerStartError, match=r"log\.dirs|in use|lock"):
        tidemark.Broker(tmp_path / "data").start()
    slow = tidemark.Broker(start_timeout_s=0.01)
    with pytest.raises(tidemark.BrokerStartError, match=r"within 0\.01 s \(start_timeout_s\)"):
        slow.start()
    with pytest.raises(tidemark.BrokerError, match="not started"):
        _ = slow.data_dir


@pytest.mark.long(seconds=3)
def test_a_setting_that_nobody_knows_is_warned_of() -> None:
    settings = {"log.retention.mss": "5"}
    broker = tidemark.Broker(settings=settings)
    with pytest.warns(UserWarning, match=r"log\.retention\.mss.*log\.retention\.ms") as warned:
        broker.start()
    broker.close()
    assert [one.filename for one in warned] == [__file__]


def test_a_port_that_somebody_took_meanwhile_is_named_and_the_data_stay() -> None:
    with tidemark.Broker(topics=["kept"]) as broker:
        put(broker, "kept", [b"one"])
        host, _, port = broker.bootstrap_servers.rpartition(":")
        broker.stop()
        with socket.socket() as taken:
            taken.bind((host, int(port)))
            taken.listen()
            with pytest.raises(tidemark.BrokerStartError, match="Address already in use"):
                broker.start()
        broker.start()  # nothing of it was lost
        assert read(broker, "kept", 1) == [b"one"]


async def test_the_async_twin_does_the_same_while_the_loop_continues() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def while_it_turns(work: Awaitable[T]) -> T:
        """A call that held the loop would let no other task have a turn."""
        before = turns
        found = await work
        assert turns > before + 1, "the loop stood still"
        return found

    turning = asyncio.create_task(turn())
    broker = await while_it_turns(tidemark.AsyncBroker(topics=["async"]).start())
    try:
        producer = broker.producer()
        producer.produce("async", b"one")
        assert await asyncio.to_thread(producer.flush, 30) == 0
        await while_it_turns(broker.kill())
        await while_it_turns(broker.start())
        await while_it_turns(broker.pause())
        await while_it_turns(broker.resume())
        await while_it_turns(broker.advance("8d"))
        assert (await while_it_turns(broker.status()))["stage"] == "running"
        await while_it_turns(broker.restart())
        directory = broker.data_dir
    finally:
        await while_it_turns(broker.close())
    assert not broker.is_running
    assert not directory.exists()
    turning.cancel()


async def test_the_loop_of_the_async_twin_never_waits_for_a_restart() -> None:
    async with tidemark.AsyncBroker(settings={"remote.log.storage.system.enable": False}) as broker:
        turns = 0
        restarting = asyncio.create_task(broker.restart())
        while not restarting.done():
            turns += broker.is_running
            await asyncio.sleep(0)
        assert turns > 100, "each turn has asked"
        fault = await broker.faults.add(api="Produce", delay_ms=1)
        with pytest.raises(TimeoutError, match=r"not hit 2 times within 0\.4 s"):
            await fault.wait(2, timeout_s=0.4)
        waiting = asyncio.create_task(fault.wait(timeout_s=600))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@pytest.mark.smoke
async def test_the_async_twin_is_a_context_manager() -> None:
    async with tidemark.AsyncBroker() as broker:
        assert broker.is_running
        directory = broker.data_dir
    assert not broker.is_running
    assert not directory.exists()


async def test_a_cancelled_start_of_the_async_twin_leaves_nothing(tmp_path: Path) -> None:
    broker = tidemark.AsyncBroker(tmp_path / "data")
    starting = asyncio.create_task(broker.start())
    await in_the_loop(broker.log_file.exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not broker.is_running


def test_a_killed_guardian_takes_broker_and_tier_with_it(tmp_path: Path) -> None:
    broker = tidemark.Broker().start()
    told(broker, tmp_path / "facts")
    facts = facts_in(tmp_path / "facts")
    os.kill(facts["pids"][0], signal.SIGKILL)
    until(lambda: not any(map(is_running, facts["pids"])), "all processes are gone")
    until(lambda: not broker.is_running, "their end is noticed")
    with pytest.raises(tidemark.BrokerError, match="does not run"):
        broker.status()
    broker.close()
    assert_nothing_left(facts)


def test_the_names_of_a_container_work() -> None:
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft()
    with container.with_env("KAFKA_NUM_PARTITIONS", 2) as kafka:
        host, port = kafka.get_container_host_ip(), kafka.get_exposed_port(9093)
        assert kafka.get_bootstrap_server() == f"{host}:{port}"
        put(kafka.broker, "made-by-use", [b"one"])
        topics = kafka.broker.admin().list_topics("made-by-use", timeout=30).topics
        assert len(topics["made-by-use"].partitions) == 2
        assert kafka.start() is kafka
        assert kafka.get_exposed_port(9093) == port, "the broker that runs"
        assert b"control_listener=" in kafka.get_logs()[0]
    with KafkaContainer().with_bind_ports(9093, port) as bound:
        assert bound.get_bootstrap_server() == f"127.0.0.1:{port}"
        put(bound.broker, "made-by-use", [b"one"])
    assert not kafka.broker.is_running
