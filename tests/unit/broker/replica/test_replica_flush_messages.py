"""`flush.messages`: what reaches it is seen and answered after fsync; nothing is fsynced here."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce import ProduceHandler
from kafka_protocol.errors import ErrorCode
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.data_plane import World, batch, finish, start
from tests.support.worlds.pools import HeldPool, turns


def flushing(directory: Path, messages: int) -> tuple[World, HeldPool]:
    pool = HeldPool(is_holding=False)
    world = World(directory, disk=FaultyDisk(), pool=pool)
    world.add_topic("t", flush_messages=messages)
    pool.is_holding = True
    return world, pool


def asked(world: World, acks: int) -> Any:
    partitions = [{"index": 0, "records": batch(b"x")}]
    topics = [{"name": "t", "partition_data": partitions}]
    fields = {"acks": acks, "timeout_ms": 1000, "topic_data": topics}
    return start(ProduceHandler(world.replicas), 9, fields)


def code(answer: Any) -> int:
    answered = finish(ProduceHandler(None), 9, answer)  # type: ignore[arg-type]
    return int(answered.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("acks", [-1, 1])
async def test_a_producer_hears_of_what_is_on_the_disk(tmp_path: Path, acks: int) -> None:
    world, pool = flushing(tmp_path, 1)
    waiting = asyncio.ensure_future(asked(world, acks))
    await pool.until_held()
    await turns()
    log = world.log("t")
    assert (log.high_watermark, log.recovery_point) == (0, 0)
    assert not waiting.done()
    pool.release()
    assert code(await waiting) == 0
    assert (log.high_watermark, log.recovery_point) == (1, 1)


async def test_below_the_interval_no_append_waits_and_later_ones_join_the_flush(
    tmp_path: Path,
) -> None:
    world, pool = flushing(tmp_path, 3)
    log = world.log("t")
    for _ in range(2):
        assert code(asked(world, -1)) == 0
    assert (log.high_watermark, pool.held) == (2, 0)
    third = asyncio.ensure_future(asked(world, 1))
    await pool.until_held()
    fourth = asyncio.ensure_future(asked(world, -1))
    await turns()
    assert log.high_watermark == 2
    pool.release()
    assert [code(await each) for each in (third, fourth)] == [0, 0]
    assert (log.high_watermark, log.recovery_point) == (4, 4)
    assert code(asked(world, -1)) == 0
    assert (log.high_watermark, log.recovery_point) == (5, 4)


async def test_after_a_failed_fsync_nothing_is_acknowledged(tmp_path: Path) -> None:
    world, pool = flushing(tmp_path, 1)
    waiting = asyncio.ensure_future(asked(world, 1))
    await pool.until_held()
    world.disk.fail(["fsync"])  # type: ignore[attr-defined]
    pool.release()
    assert code(await waiting) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_acks_0_waits_for_nothing(tmp_path: Path) -> None:
    world, pool = flushing(tmp_path, 1)
    assert asked(world, 0) is None
    await pool.until_held()
    pool.release()
    await turns()
    assert world.log("t").recovery_point == 1
