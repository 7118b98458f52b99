"""A damaged batch of a durable topic is never sent, and the next start reads that log whole."""

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data_plane_harness import World, finish, start, values_of
from fetch_harness import ask, make, parts
from support_pools import HeldPool, turns

from kafka_protocol.errors import ErrorCode
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.types import TopicPartition
from local_log.log_dir import RECOVERY_POINTS, UNKNOWN
from metadata_topic.controller.topic_names import REMOTE_METADATA_TOPIC

Change = Callable[[bytearray], None]
HEADER_BYTES = 61


def flip(position: int) -> Change:
    def change(batch: bytearray) -> None:
        batch[position] ^= 1

    return change


def move(by: int) -> Change:
    """The base offset is covered by no checksum."""

    def change(batch: bytearray) -> None:
        (base,) = struct.unpack_from(">q", batch)
        struct.pack_into(">q", batch, 0, base + by)

    return change


async def filled(directory: Path, topic: str = REMOTE_METADATA_TOPIC) -> World:
    """Five batches of a record each, all seen."""
    world = World(directory, pool=HeldPool(is_holding=False))
    world.add_topic(topic)
    for number in range(5):
        world.append(topic, b"%d" % number)
    await turns()
    assert world.log(topic).high_watermark == 5
    return world


def damage(world: World, number: int, change: Change, topic: str = REMOTE_METADATA_TOPIC) -> None:
    [path] = world.log(topic).directory.glob("*.log")
    data = bytearray(path.read_bytes())
    size = len(data) // 5
    batch = data[number * size : (number + 1) * size]
    change(batch)
    data[number * size : (number + 1) * size] = batch
    path.write_bytes(data)


def fetched(world: World, offset: int, topic: str = REMOTE_METADATA_TOPIC) -> Any:
    handler = make(world)
    fields = ask(world, 11, (topic, [{"fetch_offset": offset}]))
    [found] = parts(finish(handler, 11, start(handler, 11, fields)))
    return found


@pytest.mark.parametrize(
    "change",
    [flip(HEADER_BYTES + 3), flip(17), flip(40), move(-1), move(1 << 40)],
    ids=["record", "checksum", "header", "earlier offset", "later offset"],
)
def test_what_is_before_the_damage_is_sent_and_then_its_place_is_refused(
    tmp_path: Path, change: Change
) -> None:
    async def scene() -> None:
        world = await filled(tmp_path)
        assert values_of(fetched(world, 0).records) == [b"0", b"1", b"2", b"3", b"4"]
        damage(world, 3, change)
        assert values_of(fetched(world, 0).records) == [b"0", b"1", b"2"]

    asyncio.run(scene())


def test_the_damaged_batch_itself_is_corrupt_and_the_log_is_read_whole_by_the_next_start(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        world = await filled(tmp_path)
        world.logs.checkpoint_recovery_points()
        assert points(world) == {TopicPartition(REMOTE_METADATA_TOPIC, 0): 5}
        damage(world, 3, flip(HEADER_BYTES + 3))
        found = fetched(world, 3)
        assert (found.error_code, found.records) == (ErrorCode.CORRUPT_MESSAGE, b"")
        assert values_of(fetched(world, 4).records) == [b"4"]
        world.logs.checkpoint_recovery_points()
        assert points(world) == {TopicPartition(REMOTE_METADATA_TOPIC, 0): UNKNOWN}

    asyncio.run(scene())


def points(world: World) -> dict[TopicPartition, int]:
    return offset_checkpoint.parse((world.directory / RECOVERY_POINTS).read_bytes())


def test_batches_of_other_topics_are_sent_as_they_are(tmp_path: Path) -> None:
    async def scene() -> None:
        world = await filled(tmp_path, "orders")
        damage(world, 3, flip(HEADER_BYTES + 3), "orders")
        found = fetched(world, 3, "orders")
        assert found.error_code == 0
        assert len(found.records) > 0

    asyncio.run(scene())
