"""Records in and out of an embedded broker, and processes that must be gone."""

import json
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import TopicPartition

import tidemark
from tests.support.brokers.process import until

READ_S = 30.0


def put(broker: tidemark.Broker, topic: str, values: list[bytes], *, timestamp: int = 0) -> None:
    producer = broker.producer()
    for value in values:
        producer.produce(topic, value, partition=0, timestamp=timestamp)
    assert producer.flush(READ_S) == 0


def read(broker: tidemark.Broker, topic: str, count: int) -> list[bytes]:
    """The first records of partition 0, as an assigned consumer gets them."""
    consumer = broker.consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, READ_S)
    consumer.close()
    return [message.value() for message in messages]


def log_start(broker: tidemark.Broker, topic: str) -> int:
    consumer = broker.consumer()
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=READ_S)
    consumer.close()
    return int(low)


def pids_of(broker: tidemark.Broker) -> list[int]:
    """Its guardian, the processes of its nodes, and of a lone broker the tier process."""
    guarded = broker._nodes.guarded
    assert guarded is not None
    found = [guarded._process.pid, *broker.controller_pids.values(), *broker.broker_pids.values()]
    if len(broker.broker_pids) == 1:
        found.append(broker.status()["tier"]["pid"])
    assert all(psutil.pid_exists(pid) for pid in found), found
    return found


def told(broker: tidemark.Broker, file: Path) -> None:
    """Write down what must be gone later; whole or not at all."""
    facts = {"pids": pids_of(broker), "directory": str(broker.data_dir)}
    part = file.with_suffix(".part")
    part.write_text(json.dumps(facts))
    part.rename(file)


def facts_in(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(until(lambda: file.exists() and file.read_text(), str(file)))
    return found


def assert_nothing_left(facts: dict[str, Any]) -> None:
    def left() -> list[object]:
        running = [pid for pid in facts["pids"] if is_running(pid)]
        return running + [path for path in [facts["directory"]] if Path(path).exists()]

    until(lambda: not left(), f"nothing is left of {facts}")


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
