"""DeleteRecords: answered when the new log start survives a power cut, and no sooner."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import delete_records
from broker.handlers.delete_records import DeleteRecordsHandler
from broker.network.registry import Handler
from broker.replica.partition import Partition
from kafka_protocol.errors import ErrorCode
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.types import TopicPartition
from runtime.disk import Disk
from runtime.work import STEP_WORK
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.power_cut_disk import PowerCutDisk
from tests.support.sim.rng import SeededRng
from tests.support.worlds.data_plane import World, call, finish, start
from tests.support.worlds.pools import HeldPool, turns
from tests.support.worlds.remote_log import impatient

VERSION = 2
ORDERS = TopicPartition("orders", 0)


def world_of(directory: Path, disk: Disk | None = None) -> tuple[World, HeldPool]:
    """Ten records in one partition."""
    pool = HeldPool(is_holding=False)
    world = World(directory, disk=disk or Disk(), pool=pool)
    world.add_topic("orders")
    for number in range(10):
        world.append("orders", b"%d" % number)
    return world, pool


def made(world: World, pool: HeldPool) -> Handler:
    return DeleteRecordsHandler(world.replicas, pool, impatient(world))


def asked(offset: int) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "offset": offset}]
    return {"topics": [{"name": "orders", "partitions": partitions}], "timeout_ms": 1000}


def partition_of(answer: Any) -> Any:
    ((partition,),) = [topic.partitions for topic in answer.topics]
    return partition


def kept(directory: Path) -> int | None:
    path = directory / offset_checkpoint.LOG_STARTS
    return offset_checkpoint.parse(path.read_bytes()).get(ORDERS) if path.exists() else None


async def test_it_is_answered_when_the_log_start_is_on_disk(tmp_path: Path) -> None:
    world, pool = world_of(tmp_path)
    handler = made(world, pool)
    pool.is_holding = True
    answer = asyncio.ensure_future(start(handler, VERSION, asked(7)))
    await pool.until_held()
    await turns()
    assert not answer.done()
    assert kept(tmp_path) is None
    pool.release()
    partition = partition_of(finish(handler, VERSION, await answer))
    assert (partition.error_code, partition.low_watermark) == (ErrorCode.NONE, 7)
    assert kept(tmp_path) == 7


async def test_an_answer_names_no_log_start_that_another_request_has_just_raised(
    tmp_path: Path,
) -> None:
    world, pool = world_of(tmp_path)
    handler = made(world, pool)
    pool.is_holding = True
    answer = asyncio.ensure_future(start(handler, VERSION, asked(7)))
    await pool.until_held()
    pool.release()
    world.log("orders").raise_log_start(9)
    partition = partition_of(finish(handler, VERSION, await answer))
    assert partition.low_watermark == kept(tmp_path) == 7


@pytest.mark.parametrize("operation", ["fsync", "write_at", "rename"])
def test_a_log_start_that_cannot_be_kept_is_an_error(tmp_path: Path, operation: str) -> None:
    disk = FaultyDisk()
    world, pool = world_of(tmp_path, disk)
    disk.fail([operation], path_part=offset_checkpoint.LOG_STARTS)
    answer = call(made(world, pool), VERSION, asked(7))
    partition = partition_of(answer)
    assert (partition.error_code, partition.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_what_was_answered_survives_every_power_cut(tmp_path: Path) -> None:
    for seed in range(20):
        directory = tmp_path / str(seed)
        directory.mkdir()
        disk = PowerCutDisk(directory, SeededRng(seed))
        world, pool = world_of(directory, disk)
        answer = call(made(world, pool), VERSION, asked(7))
        disk.cut()
        assert partition_of(answer).error_code == ErrorCode.NONE
        assert kept(directory) == 7


@pytest.mark.parametrize("offset", [11, -2])
def test_offsets_outside_of_the_log_change_nothing(tmp_path: Path, offset: int) -> None:
    world, pool = world_of(tmp_path)
    answer = call(made(world, pool), VERSION, asked(offset))
    assert partition_of(answer).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.log("orders").log_start_offset == 0


def test_minus_one_means_the_high_watermark(tmp_path: Path) -> None:
    world, pool = world_of(tmp_path)
    answer = call(made(world, pool), VERSION, asked(-1))
    assert partition_of(answer).low_watermark == 10
    assert kept(tmp_path) == 10


async def test_many_log_starts_are_raised_and_published_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_records, "_UNITS", STEP_WORK)
    world, pool = world_of(tmp_path)
    world.add_topic("wide", 10)
    for index in range(10):
        world.append("wide", b"a", index=index)
    told: list[int] = []
    hosted = [world.replicas.require("wide", index) for index in range(10)]
    monkeypatch.setattr(Partition, "log_start_raised", lambda one: told.append(one.partition))
    partitions = [{"partition_index": index, "offset": 1} for index in range(10)]
    fields = {"topics": [{"name": "wide", "partitions": partitions}], "timeout_ms": 1000}
    answer = asyncio.ensure_future(start(made(world, pool), VERSION, fields))
    seen = [(0, 0)]
    for _ in range(60):
        await asyncio.sleep(0)
        seen.append((sum(one.log.log_start_offset for one in hosted), len(told)))
    assert seen[-1] == (10, 10)
    assert max(later[0] - before[0] for before, later in pairwise(seen)) == 1
    assert max(later[1] - before[1] for before, later in pairwise(seen)) == 1
    assert [one.error_code for one in (await answer).topics[0].partitions] == [0] * 10
