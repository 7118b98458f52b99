"""A broker that may open few files, and its active controller in another process.

What only this catches: a figure that is not of this process's limit or gets lost on the way, and
replicas that take more descriptors than the controller thinks.
"""

import asyncio
import os
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.process import free_ports
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until_asked

pytestmark = [pytest.mark.lasts(seconds=30), pytest.mark.patience(seconds=120)]

OPEN_FILES = 300
TOPICS, PARTITIONS = 30, 10
"""One descriptor each would be all that the process may have."""
PATIENCE_S = 60
SETTINGS = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "broker.heartbeat.interval.ms": "300",
    "num.partitions": str(OPEN_FILES),  # of topics that are made on the way
}


class SmallBroker(TidemarkController):
    """Starts as others do, but may open few files."""

    def start_command(self) -> list[str]:
        # Of the child alone; the broker raises its soft limit to the hard one.
        limited = f'ulimit -n {OPEN_FILES}; exec "$@"'
        return ["sh", "-c", limited, "sh", *super().start_command()]


def created(tools: AdminClient, names: list[str]) -> dict[str, str]:
    """Ask for each topic in a request of its own, all at once; returns why one was refused."""
    asked = {
        name: tools.create_topics([NewTopic(name, PARTITIONS, 1)], request_timeout=20)[name]
        for name in names
    }
    refused = {}
    for name, answer in asked.items():
        try:
            answer.result(30)
        except KafkaException as error:
            refused[name] = str(error)
    return refused


def serves(address: str) -> bool:
    try:
        return bool(AdminClient({"bootstrap.servers": address}).list_topics(timeout=2).brokers)
    except KafkaException:
        return False


def produced(address: str, names: list[str]) -> int:
    """Records that were taken, one in each partition."""
    producer = Producer({"bootstrap.servers": address, "delivery.timeout.ms": 30_000})
    taken: list[object] = []
    for name in names:
        for partition in range(PARTITIONS):
            producer.produce(
                name,
                b"v",
                partition=partition,
                on_delivery=lambda error, _: taken.append(error) if error is None else None,
            )
    assert producer.flush(40) == 0
    return len(taken)


async def test_an_active_controller_elsewhere_leaves_a_broker_its_reserve(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, Plan(TidemarkController, is_dynamic=True, count=1, has_links=False))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with quorum:
        leader = await quorum.leader()
        small = SmallBroker(2, tmp_path / "small", quorum.membership, SETTINGS)
        small.settings["listeners"] = f"CONTROLLER://127.0.0.1:{small.port},PLAINTEXT://{address}"
        quorum.controllers[2] = small
        await small.format("--no-initial-controllers")
        await small.start()
        await until_asked(lambda: serves(address), "the broker serves", deadline_s=PATIENCE_S)
        tools = AdminClient({"bootstrap.servers": address, "socket.timeout.ms": 30_000})
        names = [f"t{number}" for number in range(TOPICS)]
        refused = await asyncio.to_thread(created, tools, names)
        made = [name for name in names if name not in refused]
        assert made
        assert refused
        for why in refused.values():
            assert "POLICY_VIOLATION" in why
            assert "Broker 2 has" in why
            assert f"needs {PARTITIONS} there" in why
            assert "ulimit -n" in why
        assert await asyncio.to_thread(produced, address, made) == len(made) * PARTITIONS
        open_files = len(os.listdir(f"/proc/{small.pid}/fd"))
        print(f"{len(made)} topics made, {open_files} files open")
        assert open_files < OPEN_FILES
        tools.list_topics("on-the-way", timeout=10)
        assert (await quorum.leader()).node_id == leader.node_id
    assert "topic not created on the way" in small.log_file.read_text()
