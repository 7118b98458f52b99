"""DescribeLogDirs: what lies where, from memory; disks that fail or do not answer."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.describe_log_dirs import DescribeLogDirsHandler
from kafka_protocol.errors import ErrorCode
from runtime import work
from runtime.executors import InlinePool, Pool
from tests.support.sim.memory_disk import MemoryDisk
from tests.support.sim.memory_machine import MemoryMachine
from tests.support.worlds.data_plane import World, call, finish, start
from tests.support.worlds.one_broker import OneBroker
from tests.support.worlds.pools import HeldPool, turns


@pytest.fixture
def broker(tmp_path: Path) -> OneBroker:
    return OneBroker(tmp_path)


def handler_of(world: OneBroker | World, pool: Pool | None = None) -> DescribeLogDirsHandler:
    return DescribeLogDirsHandler(world.logs, world.replicas, pool or InlinePool())


def described(broker: OneBroker, asked: Any = None, version: int = 5) -> list[Any]:
    return list(call(handler_of(broker), version, {"topics": asked}).results)


def held(result: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """Size and lag by topic and partition."""
    return {
        (topic.name, one.partition_index): (one.partition_size, one.offset_lag)
        for topic in result.topics
        for one in topic.partitions
    }


def test_sizes_are_those_of_the_files_in_each_directory(broker: OneBroker) -> None:
    broker.served("t", 4)
    broker.served("u", 1, records=5)
    broker.replicas.require("t", 0).log.roll()
    broker.append("t", 0)
    expected: list[dict[tuple[str, int], tuple[int, int]]] = [{}, {}]
    for topic, index in (("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0)):
        where = broker.where(topic, index)
        files = (broker.paths[where] / f"{topic}-{index}").glob("*.log")
        expected[where][topic, index] = sum(path.stat().st_size for path in files), 0
    results = described(broker)
    assert [held(result) for result in results] == expected
    assert [result.log_dir for result in results] == [str(path) for path in broker.paths]
    for result in results:
        assert 0 < result.usable_bytes <= result.total_bytes


def test_a_directory_that_is_offline_has_its_error_alone(broker: OneBroker) -> None:
    broker.served("t", 2)
    away = broker.where("t", 1)
    broker.logs.fail(broker.logs.dirs[away], OSError(errno.EIO, "away"))
    for results in (described(broker), described(broker, [{"topic": "t", "partitions": [0, 1]}])):
        failed, works = results[away], results[1 - away]
        assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (held(failed), failed.total_bytes, failed.usable_bytes) == ({}, -1, -1)
        assert works.error_code == ErrorCode.NONE
        assert list(held(works)) == [("t", 0)]


def test_a_directory_that_is_missing_since_the_start_is_named(broker: OneBroker) -> None:
    broker.served("t", 2)
    broker.start(missing=[0])
    results = described(broker)
    assert [(one.log_dir, one.error_code) for one in results] == [
        (str(broker.paths[0]), ErrorCode.KAFKA_STORAGE_ERROR),
        (str(broker.paths[1]), ErrorCode.NONE),
    ]


def test_a_disk_that_does_not_say_how_full_it_is_fails_alone(broker: OneBroker) -> None:
    broker.served("t", 2)
    broker.disk.fail(["free_bytes"], path_part=str(broker.paths[0]), error=errno.EIO)
    results = described(broker)
    assert [one.error_code for one in results] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert len(broker.logs.online_dirs()) == 2


def test_a_replica_that_is_not_served_yet_has_no_known_lag(broker: OneBroker) -> None:
    broker.create("t")
    assert held(described(broker)[broker.where("t")]) == {("t", 0): (0, -1)}
    broker.commit_assignments()
    assert held(described(broker)[broker.where("t")]) == {("t", 0): (0, 0)}


async def test_the_loop_does_not_wait_for_a_disk(broker: OneBroker) -> None:
    broker.served("t")
    pool = HeldPool()
    handler = handler_of(broker, pool)
    answer = asyncio.ensure_future(start(handler, 5, {"topics": None}))
    await pool.until_held()
    await turns()
    assert not answer.done()
    pool.release()
    assert len(finish(handler, 5, await answer).results) == 2


async def test_many_partitions_are_looked_up_and_described_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "STEP_WORK", 100)
    many = 500
    world = World(tmp_path, disk=MemoryDisk(MemoryMachine()))
    world.add_topic("t", many, segment_index_bytes=64)
    handler = handler_of(world)
    turns_of_others = []
    for asked in (None, [{"topic": "t", "partitions": range(4_000)}]):
        answer = asyncio.ensure_future(start(handler, 5, {"topics": asked}))
        count = 0
        while not answer.done():
            await asyncio.sleep(0)
            count += 1
        (result,) = finish(handler, 5, await answer).results
        assert sorted(held(result)) == [("t", index) for index in range(many)]
        turns_of_others.append(count)
    described, looked_up = turns_of_others
    assert described > 3
    assert looked_up > described + 10
