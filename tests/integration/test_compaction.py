"""Compacted topics of a real broker: cleaned by its own process, served, and kept through kills."""

import os
import random
import signal
from collections.abc import Callable

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.files.offset_checkpoint import CLEANER_OFFSETS
from kafka_protocol.types import TopicPartition
from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess, until
from tests.support.rounds import rounds

Records = list[tuple[bytes, bytes | None]]

OFTEN = {
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
}
SMALL = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.index.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    "file.delete.delay.ms": "100",
}


def create(broker: BrokerProcess, name: str, **config: str) -> None:
    settings = SMALL | {key.replace("_", "."): value for key, value in config.items()}
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(30)


def written(count: int, keys: int, seed: int = 1, size: int = 100) -> Records:
    rng = random.Random(seed)
    return [
        (
            b"key-%d" % rng.randrange(keys),
            None if rng.random() < 0.05 else rng.randbytes(size),
        )
        for number in range(count)
    ]


def table_of(records: Records) -> dict[bytes, bytes]:
    table: dict[bytes, bytes] = {}
    for key, value in records:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


def read_table(broker: BrokerProcess, topic: str) -> dict[bytes, bytes]:
    return table_of([(key or b"", value) for _, key, value in read_all(broker, topic)])


def cleaned_to(broker: BrokerProcess, topic: str) -> int:
    path = broker.log_directory / CLEANER_OFFSETS
    if not path.exists():
        return 0
    return offset_checkpoint.parse(path.read_bytes()).get(TopicPartition(topic, 0), 0)


def passes(broker: BrokerProcess) -> float:
    return broker.metric("tidemark_log_cleaner_passes_total")


def wait_until_clean(broker: BrokerProcess, topic: str) -> None:
    """Until everything below the active segment was cleaned."""
    until(
        lambda: cleaned_to(broker, topic) == broker.local_segments(topic)[-1] > 0,
        f"{topic} is clean",
    )


def cleaner_pids(broker: BrokerProcess) -> list[int]:
    children = psutil.Process(broker.pid).children()
    return [one.pid for one in children if "local_log.cleaner.process" in " ".join(one.cmdline())]


@pytest.fixture
def cleaning(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return make_broker(settings=OFTEN).start()


@pytest.mark.smoke
def test_of_each_key_the_newest_record_stays(cleaning: BrokerProcess) -> None:
    create(cleaning, "table")
    records = written(40_000, 500)
    produce(cleaning, "table", records)
    wait_until_clean(cleaning, "table")
    found = read_all(cleaning, "table")
    assert len(found) < 20_000
    assert read_table(cleaning, "table") == table_of(records)
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    # From each offset, holes as well, the reader goes on at the next record.
    offsets = [offset for offset, _, _ in found]
    for start in random.Random(2).sample(range(offsets[-1]), 5):
        first = read_all(cleaning, "table", start=start)[0][0]
        assert first == min(offset for offset in offsets if offset >= start)
    [pid] = cleaner_pids(cleaning)
    cleaning.terminate()
    until(lambda: not psutil.pid_exists(pid), "the cleaner process ended with its broker")
    cleaning.start()
    assert read_table(cleaning, "table") == table_of(records)


def test_batches_that_are_compressed_and_numbered_stay_so(cleaning: BrokerProcess) -> None:
    create(cleaning, "table", compression_type="zstd")
    records = written(20_000, 100, seed=3)
    produce(cleaning, "table", records, **{"enable.idempotence": True})
    produce(cleaning, "table", written(20_000, 100, seed=4))
    wait_until_clean(cleaning, "table")
    assert read_table(cleaning, "table") == table_of(records + written(20_000, 100, seed=4))


def test_a_killed_cleaner_process_harms_nothing(cleaning: BrokerProcess) -> None:
    create(cleaning, "table")
    records: Records = []
    killed: set[int] = set()
    for seed in range(4):
        some = written(20_000, 300, seed=seed)
        produce(cleaning, "table", some)
        records += some
        found = until(lambda: cleaner_pids(cleaning), "a cleaner process runs")
        killed.update(found)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
    wait_until_clean(cleaning, "table")
    assert killed
    assert read_table(cleaning, "table") == table_of(records)
    until(
        lambda: cleaning.metric("kafka_log_LogCleaner_DeadThreadCount") == 0, "the cleaner is well"
    )


def test_a_stopped_cleaner_process_ends_with_its_broker(cleaning: BrokerProcess) -> None:
    create(cleaning, "table")
    produce(cleaning, "table", written(20_000, 300))
    [pid] = until(lambda: cleaner_pids(cleaning), "a cleaner process runs")
    os.kill(pid, signal.SIGSTOP)
    cleaning.kill()
    os.kill(pid, signal.SIGCONT)
    until(lambda: not psutil.pid_exists(pid), "the cleaner process ended")


@pytest.mark.rounds(seconds=15)
def test_a_broker_killed_while_it_cleans_loses_nothing(cleaning: BrokerProcess) -> None:
    create(cleaning, "table")
    rng, records = random.Random(5), []
    for number in range(rounds("TIDEMARK_CLEANER_KILLS", quick=3, full=12)):
        some = written(20_000, 300, seed=number)
        produce(cleaning, "table", some)
        records += some
        before = passes(cleaning)
        wanted = before + rng.randrange(2)
        until(lambda wanted=wanted: passes(cleaning) >= wanted, "the cleaner has begun")
        cleaning.kill()
        cleaning.start()
        assert read_table(cleaning, "table") == table_of(records)
    wait_until_clean(cleaning, "table")
    assert read_table(cleaning, "table") == table_of(records)


def test_a_damaged_partition_is_set_aside_named_and_served(cleaning: BrokerProcess) -> None:
    create(cleaning, "sound")
    create(cleaning, "damaged", min_cleanable_dirty_ratio="1")
    records = written(20_000, 300)
    produce(cleaning, "damaged", records)
    segment = cleaning.partition_directory("damaged") / f"{0:020}.log"
    with segment.open("r+b") as file:
        file.seek(5_000)
        byte = file.read(1)
        file.seek(5_000)
        file.write(bytes([byte[0] ^ 1]))
    alter(cleaning, "damaged", "min.cleanable.dirty.ratio", "0.01")
    count = "kafka_log_LogCleanerManager_uncleanable_partitions_count"
    until(
        lambda: cleaning.metric(count, logDirectory=str(cleaning.log_directory)) == 1,
        "the damaged partition is set aside",
    )
    assert f"damaged batch at byte 0 of {segment}" in cleaning.log_text()
    health = cleaning.health()
    assert (health["status"], health["parts"]["compaction"]) == ("yellow", "yellow")
    assert "compaction: damaged-0 is not compacted until the next start" in str(health["reasons"])
    assert cleaning.local_segments("damaged")[0] == 0
    produce(cleaning, "sound", records)
    wait_until_clean(cleaning, "sound")
    assert len(read_all(cleaning, "damaged", start=cleaning.local_segments("damaged")[1])) > 0


def alter(broker: BrokerProcess, topic: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(30)
