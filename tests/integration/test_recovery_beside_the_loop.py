"""A broker that recovers its logs answers for itself and can be stopped; nothing is served yet."""

import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until

PARTITIONS = 200
RECORDS = 5
ANSWER_S = 1.0
"""A health page is given up by those who poll it after about this time."""


def killed(directory: Path, *, log_directories: int = 1) -> DirectoriesBroker:
    """A broker that got a SIGKILL with records in each partition that were never flushed."""
    broker = DirectoriesBroker(directory, log_directories=log_directories)
    broker.settings = {
        "metadata.log.dir": str(broker.log_directories[0]),
        "log.index.size.max.bytes": "4096",
    }
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("many", PARTITIONS, 1)])["many"].result(60)
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(
                "many",
                b"%d" % number,
                partition=partition,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
        assert producer.flush(60) == 0  # a batch each
    assert not failures
    broker.kill()
    return broker


def records(broker: DirectoriesBroker, partitions: list[int]) -> dict[int, list[bytes]]:
    """What a consumer reads of them, until it has as many records as were written."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("many", one, 0) for one in partitions])
    found: dict[int, list[bytes]] = {one: [] for one in partitions}
    wanted = len(partitions) * RECORDS

    def read() -> bool:
        for message in consumer.consume(1000, 1):
            assert message.error() is None, message.error()
            found[message.partition()].append(message.value())
        return sum(map(len, found.values())) >= wanted

    try:
        until(read, f"{wanted} records are read")
    finally:
        consumer.close()
    return found


def counted(broker: DirectoriesBroker) -> tuple[int, int] | None:
    """How many partitions of how many the health page says are done."""
    began = time.monotonic()
    status, page = broker.http("/health")
    took_s = time.monotonic() - began
    if not status:
        return None
    assert took_s < ANSWER_S, f"/health took {took_s:.2f} s"
    assert status == 200
    said = re.fullmatch(r"recovering (\d+) of (\d+) partitions", json.loads(page)["stage"])
    return None if said is None else (int(said[1]), int(said[2]))


@pytest.mark.smoke
def test_a_recovering_broker_says_how_far_it_is_and_ends_when_asked(tmp_path: Path) -> None:
    broker = killed(tmp_path / "broker")
    try:
        broker.run_with("--read-ms", "60")
        broker.start(wait=False)
        seen: Counter[int] = Counter()

        def is_on_its_way() -> bool:
            found = counted(broker)
            if found is not None:
                assert found[1] == PARTITIONS
                seen[found[0]] += 1
            return len(seen) > 5

        until(is_on_its_way, "the health page says other numbers again and again")
        assert list(seen) == sorted(seen)
        assert max(seen) < PARTITIONS
        status, page = broker.http("/ready")
        assert status == 503
        assert re.fullmatch(
            rf"the broker is recovering \d+ of {PARTITIONS} partitions",
            json.loads(page)["reasons"][0],
        )
        assert not broker.answers(), "nothing is served before all logs are open"
        assert broker.terminate(5) == 0
        assert not (broker.log_directory / ".kafka_cleanshutdown").exists()
        broker.run_with()
        broker.start()
        everything = [b"%d" % number for number in range(RECORDS)]
        found = records(broker, list(range(PARTITIONS)))
        assert found == dict.fromkeys(range(PARTITIONS), everything)
        assert f"recovering {PARTITIONS} of {PARTITIONS}" not in broker.http("/health")[1]
        assert broker.terminate() == 0
        assert (broker.log_directory / ".kafka_cleanshutdown").exists()
    finally:
        broker.close()
        print(broker.log_tail())


def test_a_directory_that_fails_during_recovery_does_not_delay_the_other(
    tmp_path: Path,
) -> None:
    broker = killed(tmp_path / "broker", log_directories=2)
    try:
        healthy = [n for n in range(PARTITIONS) if broker.index_of("many", n) == 0]
        assert 0 < len(healthy) < PARTITIONS
        faults = tmp_path / "faults"
        rule = {"operations": ["read_at"], "path_part": "logs-2/many-", "error": 5, "after": 80}
        faults.write_text(json.dumps([rule]))
        broker.run_with("--faults", str(faults))
        broker.start()
        everything = [b"%d" % number for number in range(RECORDS)]
        assert records(broker, healthy) == dict.fromkeys(healthy, everything)
        report = broker.health()
        assert report["status"] == "red"
        assert any("logs-2 is offline" in reason for reason in report["reasons"])
        assert broker.terminate() == 0
        assert not (broker.log_directories[1] / ".kafka_cleanshutdown").exists()
        broker.run_with()
        broker.start()
        found = records(broker, list(range(PARTITIONS)))
        assert found == dict.fromkeys(range(PARTITIONS), everything)
    finally:
        broker.close()
        print(broker.log_tail())
