"""Three combined nodes of earlier days: what is in their directories, how they are packed.

An archive holds the log directories of all three, as a kill of all at once left them, and
`expected.json`. Nothing here may need more than the commit had that an archive is made at.
"""

import asyncio
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.process import free_ports
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until_asked

DATA = Path(__file__).parents[2] / "upgrade" / "data" / "quorums"
EXPECTED = "expected.json"
GROUP, TOPIC, GONE = "g", "t", "gone"
PARTITIONS, RECORDS = 6, 5
PATIENCE_S = 60
SETTINGS = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
    "log.retention.ms": "-1",
    # snapshots, and a log that begins behind one
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}


class CombinedQuorum(Quorum):
    """Three nodes, each with a listener for clients; `start` and `stop` them one by one.

    Attributes:
        addresses: of the clients' listeners, by node id.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory, Plan(TidemarkController, False, has_links=False, settings=SETTINGS)
        )
        self.addresses: dict[int, str] = {}
        for (one, node), port in zip(self.controllers.items(), free_ports(3), strict=True):
            self.addresses[one] = f"127.0.0.1:{port}"
            node.settings["listeners"] = (
                f"CONTROLLER://127.0.0.1:{node.port},PLAINTEXT://{self.addresses[one]}"
            )

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())


def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 10_000})


def state_of(bootstrap: str) -> dict[str, Any]:
    """Topics with their partitions and leaders, as one of the nodes knows them."""
    found = admin_of(bootstrap).list_topics(timeout=10).topics
    return {
        name: {str(index): one.leader for index, one in topic.partitions.items()}
        for name, topic in sorted(found.items())
    }


def write(bootstrap: str, topic: str, values: Iterator[int]) -> list[str]:
    """Some records to each partition; returns the acknowledged values."""
    acknowledged: list[str] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        acknowledged.append(message.value().decode())

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for partition in range(PARTITIONS):
        for _ in range(RECORDS):
            producer.produce(topic, str(next(values)), partition=partition, on_delivery=delivered)
    assert producer.flush(40) == 0
    return acknowledged


def read(bootstrap: str, topic: str, count: int, group: str) -> set[str]:
    """What a group reads from where it is, or from the beginning; it commits that."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: set[str] = set()
    try:
        for _ in range(600):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.add(message.value().decode())
            if len(found) >= count:
                break
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def make_archive(directory: Path, archive: Path) -> None:
    """Run three nodes through a short life, kill them at once and pack what they leave."""
    asyncio.run(_fill(directory))
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for one in (1, 2, 3):
            tar.add(
                directory / f"controller-{one}" / "logs", f"controller-{one}/logs", filter=_plain
            )
        tar.add(directory / EXPECTED, EXPECTED, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


async def _fill(directory: Path) -> None:
    quorum = CombinedQuorum(directory)
    values = iter(range(10_000))
    async with quorum:
        here, admin = quorum.bootstrap, admin_of(quorum.bootstrap)
        await until_asked(lambda: _brokers(admin) == 3, "all serve", deadline_s=PATIENCE_S)
        new = [NewTopic(TOPIC, PARTITIONS, 1, config={"segment.ms": "123456789"})]
        new += [NewTopic(name, 1, 1) for name in (GONE, *(f"more-{n}" for n in range(9)))]
        for made in admin.create_topics(new).values():
            await asyncio.to_thread(made.result, 30)
        await asyncio.to_thread(admin.delete_topics([GONE])[GONE].result, 30)
        first = await asyncio.to_thread(write, here, TOPIC, values)
        assert await asyncio.to_thread(read, here, TOPIC, len(first), GROUP) == set(first)
        unread = await asyncio.to_thread(write, here, TOPIC, values)
        await until_asked(
            lambda: _snapshots(directory) == 3, "all made a snapshot", deadline_s=PATIENCE_S
        )
        state = await asyncio.to_thread(state_of, here)
        for node in quorum.controllers.values():
            node.kill()
    expected = {"state": state, "read": sorted(first), "unread": sorted(unread)}
    (directory / EXPECTED).write_text(json.dumps(expected, indent=1) + "\n")


def _brokers(admin: AdminClient) -> int:
    return len(admin.list_topics(timeout=10).brokers)


def _snapshots(directory: Path) -> int:
    """How many nodes have made one."""
    found = directory.glob("controller-*/logs/__cluster_metadata-0/*.checkpoint")
    return len({one.parent for one in found})


def unpacked(archive: Path, directory: Path) -> tuple[CombinedQuorum, dict[str, Any]]:
    """The nodes of an archive, not started, and what they must have."""
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    return CombinedQuorum(directory), json.loads((directory / EXPECTED).read_text())
