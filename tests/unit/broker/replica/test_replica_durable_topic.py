"""A durable topic: nobody sees a record that a power cut could take back."""

from pathlib import Path

from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.data_plane import World
from tests.support.worlds.pools import HeldPool, turns


async def durable(directory: Path, disk: FaultyDisk | None = None) -> tuple[World, HeldPool]:
    pool = HeldPool(is_holding=False)
    world = World(directory, disk=disk or FaultyDisk(), pool=pool)
    world.add_topic(REMOTE_LOG_METADATA_TOPIC)
    await turns()
    pool.is_holding = True
    return world, pool


async def test_a_record_is_seen_when_it_was_fsynced(tmp_path: Path) -> None:
    world, pool = await durable(tmp_path)
    log = world.log(REMOTE_LOG_METADATA_TOPIC)
    world.append(REMOTE_LOG_METADATA_TOPIC, b"first")
    await pool.until_held()
    await turns()
    assert log.high_watermark == 0
    pool.release()
    await turns()
    assert log.high_watermark == 1 == log.recovery_point


async def test_what_came_after_an_fsync_waits_for_the_next_one(tmp_path: Path) -> None:
    world, pool = await durable(tmp_path)
    log = world.log(REMOTE_LOG_METADATA_TOPIC)
    world.append(REMOTE_LOG_METADATA_TOPIC, b"first")
    await pool.until_held()
    pool.release()  # the fsync is over, the loop does not know yet
    world.append(REMOTE_LOG_METADATA_TOPIC, b"second")
    await turns()
    assert log.high_watermark == 1 == log.recovery_point
    pool.release()
    await turns()
    assert log.high_watermark == 2 == log.recovery_point


async def test_after_a_failed_fsync_nothing_more_is_seen(tmp_path: Path) -> None:
    disk = FaultyDisk()
    world, pool = await durable(tmp_path, disk)
    log = world.log(REMOTE_LOG_METADATA_TOPIC)
    world.append(REMOTE_LOG_METADATA_TOPIC, b"first")
    disk.fail(["fsync"])
    await pool.until_held()
    pool.release()
    await turns()
    assert log.high_watermark == 0
