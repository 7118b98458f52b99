"""Disks that fill up or break under a running broker."""

import asyncio
import errno
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.broker import Broker
from broker.config.broker_config import BrokerConfig
from runtime.disk import Disk, OpenFile
from runtime.ports import Ports, system_ports
from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.sim.faulty_disk import FaultyDisk

MakeBroker = Callable[..., BrokerProcess]
PARTITIONS = 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def _two_directories(make_broker: MakeBroker, second: Path) -> BrokerProcess:
    broker = make_broker()
    broker.settings = {
        "log.dirs": f"{broker.log_directory},{second}",
        "metadata.log.dir": str(broker.log_directory),
        "log.index.size.max.bytes": "65536",
        "num.partitions": str(PARTITIONS),
    }
    return broker


def _send(broker: BrokerProcess, partition: int, value: bytes) -> int:
    """Code of the answer to one record, 0 for success; no retries."""
    answers: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0, "linger.ms": 0})
    producer.produce(
        "filling",
        value,
        partition=partition,
        on_delivery=lambda error, _: answers.append(0 if error is None else error.code()),
    )
    assert producer.flush(30) == 0
    return answers[0]


def leaderless(admin: AdminClient) -> list[int]:
    """Partitions of `filling` that have no leader in the metadata, ascending."""
    partitions = admin.list_topics("filling", timeout=10).topics["filling"].partitions
    return sorted(one.id for one in partitions.values() if one.leader == -1)


def directory_states(broker: BrokerProcess, path: Path) -> list[str]:
    """What `tidemark directories list` says of that directory."""
    done = broker.command("directories", "list", "--config", str(broker.config_file))
    assert done.returncode == 0, done.stderr
    lines = [line.split(None, 3) for line in done.stdout.splitlines()]
    return [line[3].strip() for line in lines if line[1] == str(path)]


def test_bad_input_N121_full_disk_fails_alone_and_returns_after_a_restart(
    small_disk: Path, make_broker: MakeBroker
) -> None:
    broker = _two_directories(make_broker, small_disk).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("filling", PARTITIONS, 1)])["filling"].result(30)
    until(lambda: list(small_disk.glob("filling-*")), "partitions lie on both disks")
    on_small = sorted(int(p.name.split("-")[1]) for p in small_disk.glob("filling-*"))
    elsewhere = sorted(set(range(PARTITIONS)) - set(on_small))
    assert on_small
    assert elsewhere
    kept = dict.fromkeys(range(PARTITIONS), 0)
    code = 0
    while not code:
        code = _send(broker, on_small[0], b"%d " % kept[on_small[0]] + bytes(400_000))
        kept[on_small[0]] += not code
    assert code == KafkaError.KAFKA_STORAGE_ERROR
    assert kept[on_small[0]] > 5
    until(lambda: leaderless(admin) == on_small, "the metadata say which partitions nobody leads")
    for partition in elsewhere:
        assert _send(broker, partition, b"x") == 0
        kept[partition] += 1
    assert "is offline" in broker.http("/health")[1]
    (state,) = directory_states(broker, small_disk)
    assert state.startswith("there, offline in the running broker: [Errno 28] No space left")
    assert broker.metric("kafka_log_LogManager_OfflineLogDirectoryCount") == 1
    assert broker.terminate() == 0
    assert not (small_disk / ".kafka_cleanshutdown").exists()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    broker.start()
    for partition, count in kept.items():
        found = [value for _, _, value in read_all(broker, "filling", partition)]
        assert len(found) >= count
        if partition == on_small[0]:
            assert [v.split()[0] for v in found[:count] if v] == [b"%d" % n for n in range(count)]
        assert _send(broker, partition, b"again") == 0
    assert directory_states(broker, small_disk) == ["there"]


@pytest.mark.smoke
def test_broker_whose_only_disk_is_full_ends_loudly_and_loses_nothing(
    small_disk: Path, make_broker: MakeBroker
) -> None:
    broker = make_broker()
    broker.settings = {
        "log.dirs": str(small_disk),
        "log.index.size.max.bytes": "65536",
    }
    broker.format()
    (broker.log_directory).mkdir(exist_ok=True)
    (broker.log_directory / "meta.properties").touch()  # the harness formats no second time
    broker.start()
    produce(broker, "filling", [(b"k", b"first")])
    sent = 1
    while _send(broker, 0, bytes(400_000)) == 0:
        sent += 1
    assert broker.process is not None
    assert broker.process.wait(30) == 1
    assert "no log directory works any more" in broker.log_text()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    broker.start()
    assert len(read_all(broker, "filling")) >= sent


def ports_on(disk: Disk) -> Ports:
    return replace(system_ports(asyncio.get_running_loop()), disk=disk)


@pytest.mark.parametrize("operation", ["append", "fsync"])
def test_metadata_log_whose_disk_fails_ends_the_broker(
    make_broker: MakeBroker, operation: str
) -> None:
    formatted = make_broker()
    assert formatted.format().returncode == 0
    config, _ = BrokerConfig.load(formatted.properties())
    disk = FaultyDisk()

    async def scenario() -> BaseException | None:
        broker = Broker(config, ports_on(disk))
        try:
            await broker.start()
            disk.fail([operation], path_part="__cluster_metadata-0", error=errno.EIO)
            await asyncio.to_thread(create)
            await asyncio.wait({broker.fatal}, timeout=30)
            assert "the metadata log failed" in str(broker.health.report())
            return broker.fatal.exception()
        finally:
            await broker.stop()

    def create() -> None:
        admin = AdminClient({"bootstrap.servers": formatted.bootstrap})
        wanted = admin.create_topics([NewTopic("t", 1, 1)], operation_timeout=5, request_timeout=5)
        with pytest.raises(KafkaException):
            wanted["t"].result(30)

    assert asyncio.run(scenario()) is not None
    assert not (formatted.log_directory / "t-0").exists()
    assert not (formatted.log_directory / ".kafka_cleanshutdown").exists()
    formatted.start()  # what is on the disk is good


class UnreadableDisk(Disk):
    """Every file of one topic gives EIO where it is sent to a client."""

    def send_file(self, socket_fd: int, file: OpenFile, position: int, size: int) -> int:
        if "filling-0" in str(file.path):
            raise OSError(errno.EIO, "Input/output error")
        return super().send_file(socket_fd, file, position, size)


def test_a_file_that_cannot_be_sent_takes_its_directory_offline(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    formatted = make_broker()
    assert formatted.format().returncode == 0
    config, _ = BrokerConfig.load(formatted.properties())

    async def scenario() -> BaseException | None:
        broker = Broker(config, ports_on(UnreadableDisk()))
        try:
            await broker.start()
            await asyncio.to_thread(produce, formatted, "filling", [(b"k", b"first")])
            await asyncio.to_thread(poll)
            await asyncio.wait({broker.fatal}, timeout=30)
            assert "is offline" in str(broker.health.report())
            return broker.fatal.exception()
        finally:
            await broker.stop()

    def poll() -> None:
        consumer = Consumer({"bootstrap.servers": formatted.bootstrap, "group.id": "unused"})
        consumer.assign([TopicPartition("filling", 0, 0)])
        consumer.poll(2)
        consumer.close()

    assert "no log directory works any more" in str(asyncio.run(scenario()))
    said = [each for each in caplog.records if "file cannot be read" in each.getMessage()]
    assert len(said) == 1
    assert "filling-0" in said[0].getMessage()
