"""The broker under a scenario: Apache Kafka or ours, with the same few handles."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafka_protocol.records.records import build_batch
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import RawClient, create_topic, produce
from tests.support.kafka.peer import KafkaPeer

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "auto.create.topics.enable": "false",
}
"""Of both: short sessions, so that a killed member is missed soon."""


class World:
    """One broker; `crash` is SIGKILL and a start on the same data."""

    def __init__(self, name: str, port: int, crash: Callable[[], None]) -> None:
        self.name, self.port, self.crash = name, port, crash

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self) -> RawClient:
        """A raw connection."""
        return RawClient(SimpleNamespace(port=self.port))  # type: ignore[arg-type]

    def create(self, topic: str, partitions: int = 1) -> None:
        """A topic that takes records."""
        with self.connect() as client:
            create_topic(client, topic, partitions)

    def fill(self, topic: str, partitions: int, count: int, first: int = 0) -> None:
        """`count` records in each partition; their values say where they belong."""
        with self.connect() as client:
            for partition in range(partitions):
                now_ms = int(time.time() * 1000)  # older ones are over by retention
                rows: list[Any] = [
                    (now_ms, None, f"{topic}-{partition}-{first + n}".encode(), [])
                    for n in range(count)
                ]
                until(
                    lambda p=partition, r=rows: (
                        produce(  # type: ignore[misc]
                            client, topic, build_batch(r), index=p
                        ).error_code
                        == 0
                    ),
                    f"{topic}-{partition} takes records",
                )

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """One raw request."""
        with self.connect() as client:
            return client.ask(api_key, version, fields)

    def committed(self, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """All offsets of a group with their metadata."""
        answer = self.ask(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=None)
        return {
            (topic.name, one.partition_index): (one.committed_offset, one.metadata or "")
            for topic in answer.topics
            for one in topic.partitions
        }

    def describe(self, group: str) -> Any:
        """State and members of a group."""
        return self.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group]).groups[0]

    def delete_topic(self, topic: str) -> None:
        """It goes with its records."""
        fields = {"topic_names": [topic], "timeout_ms": 10_000}
        self.ask(ApiKey.DELETE_TOPICS, 3, **fields)

    def ready(self) -> "World":
        """When the coordinators are there."""

        def is_found() -> bool:
            for number in range(12):
                asked = self.ask(ApiKey.FIND_COORDINATOR, 2, key=f"g-{number}", key_type=0)
                if asked.error_code != 0 or self.describe(f"g-{number}").error_code != 0:
                    return False
            return True

        until(is_found, f"{self.name} has its group coordinators")
        return self


def kafka_world(directory: Path, settings: dict[str, str]) -> tuple[World, Callable[[], None]]:
    """Apache Kafka, and what ends it."""
    peer = KafkaPeer(directory, tuple(f"{key}={value}" for key, value in settings.items()))
    peer.start()

    def crash() -> None:
        peer.kill()
        peer.start()

    return World("kafka", peer.port, crash), peer.stop


def our_world(directory: Path, settings: dict[str, str]) -> tuple[World, Callable[[], None]]:
    """A broker of ours, and what ends it."""
    broker = BrokerProcess(directory, settings=settings)
    try:
        broker.start()
    except BaseException:
        broker.close()
        raise

    def crash() -> None:
        broker.kill()
        broker.start()

    def end() -> None:
        text = broker.log_text()
        broker.close()
        assert "Traceback" not in text, text[-4000:]

    return World("tidemark", broker.port, crash), end
