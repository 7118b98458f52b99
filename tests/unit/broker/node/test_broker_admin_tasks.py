"""What a broker does unasked is really done, and what fails on the way is told."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.node.housekeeping import Housekeeping, Task, housekeeping_tasks
from broker.replica.partition import Partition
from broker.replica.topic_metrics import TopicMetrics
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.manager.log_dirs import LogManager
from runtime.disk import Disk
from runtime.executors import InlinePool
from runtime.metrics import Registry
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import simulated
from tests.support.sim.scheduler import ManualScheduler

NOW_MS = 1_700_000_000_000
HOUR_MS = 3600 * 1000
EXPIRATION_MS = 4 * HOUR_MS  # virtual time is cheap, but not the tasks of every second in it
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(15) + b"o"


def _config(directory: Path) -> BrokerConfig:
    return BrokerConfig.load(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": str(directory),
            "log.flush.scheduler.interval.ms": "1000",
            "producer.id.expiration.ms": str(EXPIRATION_MS),
        }
    )[0]


def _batch(**options: object) -> bytearray:
    return build_batch([(NOW_MS, b"k", b"v" * 100, [])], **options)  # type: ignore[arg-type]


def _manager(directory: Path, disk: Disk, clock: ManualClock, **options: object) -> LogManager:
    config = replace(LogConfig(), **options)  # type: ignore[arg-type]
    manager = LogManager([directory], lambda _: config, simulated(clock=clock, disk=disk))
    manager.load()
    return manager


def test_every_recurring_task_of_the_logs_is_run(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    scheduler = ManualScheduler(clock)
    logs = _manager(tmp_path, Disk(), clock, flush_ms=2000, retention_ms=HOUR_MS, segment_ms=1000)
    log = logs.create(*ORDERS, TOPIC_ID)
    log.append_as_leader(
        _batch(producer_id=5, producer_epoch=0, base_sequence=0), leader_epoch=0, now_ms=NOW_MS
    )
    log.update_high_watermark(1)
    tasks = housekeeping_tasks(_config(tmp_path), logs, clock)
    keeping = Housekeeping(tasks, scheduler=scheduler, pool=InlinePool())
    keeping.start(0)
    scheduler.advance(5_000)
    assert log.recovery_point == 1
    scheduler.advance(6_000)
    high_watermarks = tmp_path / "replication-offset-checkpoint"
    assert offset_checkpoint.parse(high_watermarks.read_bytes()) == {ORDERS: 1}
    scheduler.advance(120_000)
    recovery_points = tmp_path / "recovery-point-offset-checkpoint"
    assert offset_checkpoint.parse(recovery_points.read_bytes()) == {ORDERS: 1}
    log.raise_log_start(1)
    scheduler.advance(120_000)
    assert (tmp_path / "log-start-offset-checkpoint").exists()
    scheduler.advance(3 * HOUR_MS)
    assert log.segments.bases[0] == 1  # rolled, and dropped
    assert 5 in log.producers.states.producers
    scheduler.advance(2 * HOUR_MS)
    assert 5 not in log.producers.states.producers


def test_mistake_of_ours_in_a_pool_task_is_logged_and_the_task_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scheduler = ManualScheduler(ManualClock())
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        raise LookupError("a mistake of ours")

    keeping = Housekeeping(
        [Task("checkpoint", 10, run, in_pool=True)], scheduler=scheduler, pool=InlinePool()
    )
    keeping.start(0)
    scheduler.advance(25)
    assert len(runs) == 3
    assert "a mistake of ours" in caplog.text


async def test_those_who_wait_for_a_failing_fsync_are_told(tmp_path: Path) -> None:
    disk, clock = FaultyDisk(), ManualClock(NOW_MS)
    logs = _manager(tmp_path, disk, clock)
    partition = Partition(
        logs.create(REMOTE_LOG_METADATA_TOPIC, 0, TOPIC_ID),
        node_id=1,
        pool=InlinePool(),
        counters=TopicMetrics(Registry()).of("orders"),
    )

    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
    disk.fail(["fsync"])
    info = partition.append(_batch(), now_ms=NOW_MS)
    waiting = partition.committed(info.last_offset + 1)
    assert waiting is not None
    with pytest.raises(KafkaStorageError):
        await asyncio.wait_for(waiting, 10)
    assert partition.high_watermark == 0
