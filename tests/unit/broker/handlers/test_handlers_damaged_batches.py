"""A damaged batch of a durable topic is never sent, and the next start reads that log whole."""

import inspect
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from local_log.manager.log_dir import RECOVERY_POINTS, UNKNOWN
from tests.support.worlds.data_plane import World, finish, start, values_of
from tests.support.worlds.fetch import ask, make, parts
from tests.support.worlds.pools import HeldPool, turns

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


async def filled(directory: Path, topic: str = REMOTE_LOG_METADATA_TOPIC) -> World:
    """Five batches of a record each, all seen."""
    world = World(directory, pool=HeldPool(is_holding=False))
    world.add_topic(topic)
    for number in range(5):
        world.append(topic, b"%d" % number)
    await turns()
    assert world.log(topic).high_watermark == 5
    return world


def damage(
    world: World, number: int, change: Change, topic: str = REMOTE_LOG_METADATA_TOPIC
) -> None:
    [path] = world.log(topic).directory.glob("*.log")
    data = bytearray(path.read_bytes())
    size = len(data) // 5
    batch = data[number * size : (number + 1) * size]
    change(batch)
    data[number * size : (number + 1) * size] = batch
    path.write_bytes(data)


async def fetched(world: World, offset: int, topic: str = REMOTE_LOG_METADATA_TOPIC) -> Any:
    handler = make(world)
    fields = ask(world, 11, (topic, [{"fetch_offset": offset}]))
    answer = start(handler, 11, fields)
    if inspect.isawaitable(answer):
        answer = await answer
    [found] = parts(finish(handler, 11, answer))
    return found


@pytest.mark.parametrize(
    "change",
    [flip(HEADER_BYTES + 3), flip(17), flip(40), move(-1), move(1 << 40)],
    ids=["record", "checksum", "header", "earlier offset", "later offset"],
)
async def test_what_is_before_the_damage_is_sent_and_then_its_place_is_refused(
    tmp_path: Path, change: Change
) -> None:
    world = await filled(tmp_path)
    assert values_of((await fetched(world, 0)).records) == [b"0", b"1", b"2", b"3", b"4"]
    damage(world, 3, change)
    assert values_of((await fetched(world, 0)).records) == [b"0", b"1", b"2"]


async def test_a_damaged_batch_is_corrupt_and_the_next_start_reads_the_whole_log(
    tmp_path: Path,
) -> None:
    world = await filled(tmp_path)
    world.logs.checkpoint_recovery_points()
    assert points(world) == {TopicPartition(REMOTE_LOG_METADATA_TOPIC, 0): 5}
    damage(world, 3, flip(HEADER_BYTES + 3))
    found = await fetched(world, 3)
    assert (found.error_code, found.records) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert values_of((await fetched(world, 4)).records) == [b"4"]
    world.logs.checkpoint_recovery_points()
    assert points(world) == {TopicPartition(REMOTE_LOG_METADATA_TOPIC, 0): UNKNOWN}


def points(world: World) -> dict[TopicPartition, int]:
    return offset_checkpoint.parse((world.directory / RECOVERY_POINTS).read_bytes())


async def test_batches_of_other_topics_are_sent_as_they_are(tmp_path: Path) -> None:
    world = await filled(tmp_path, "orders")
    damage(world, 3, flip(HEADER_BYTES + 3), "orders")
    found = await fetched(world, 3, "orders")
    assert found.error_code == 0
    assert len(found.records) > 0


@pytest.mark.parametrize("topic", ["orders", REMOTE_LOG_METADATA_TOPIC])
async def test_a_batch_whose_header_hides_records_is_corrupt_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    """A client that looks at no checksum would pass over them, or ask for ever."""

    def end_before_it_begins(batch: bytearray) -> None:
        batch[23] ^= 0x80

    world = await filled(tmp_path, topic)
    [path] = world.log(topic).directory.glob("*.log")
    place = 3 * path.stat().st_size // 5
    damage(world, 3, end_before_it_begins, topic)
    world.log(topic).roll(0)
    for _ in range(2):
        found = await fetched(world, 3, topic)
        assert (found.error_code, found.records) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert values_of((await fetched(world, 4, topic)).records) == [b"4"]
    said = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert [line.split(". ")[0] for line in said] == [
        f"{topic}-0: damaged batch at byte {place} of {path}: offset 3"
    ]
    world.logs.checkpoint_recovery_points()
    assert (points(world)[TopicPartition(topic, 0)] == UNKNOWN) is (topic != "orders")
