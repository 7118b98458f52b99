"""Of a durable topic, whose batches are checked on the loop, an answer takes little."""

from pathlib import Path
from typing import Any

from broker.handlers.fetch_read import CHECKED_ANSWER_BYTES, CHECKED_PARTITION_BYTES
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from tests.support.worlds.data_plane import World, finish, start, values_of
from tests.support.worlds.fetch import ask, make, parts
from tests.support.worlds.pools import HeldPool, turns

VALUE = b"v" * 50_000
BATCH_BYTES_MAX = 51_000


async def filled(directory: Path, *counts: int, topic: str = REMOTE_LOG_METADATA_TOPIC) -> World:
    """So many batches in each partition, all seen."""
    world = World(directory, pool=HeldPool(is_holding=False))
    world.add_topic(topic, partitions=len(counts))
    for index, count in enumerate(counts):
        for _ in range(count):
            world.append(topic, VALUE, index=index)
    await turns()
    return world


def fetched(
    world: World, *offsets: int, topic: str = REMOTE_LOG_METADATA_TOPIC, **more: Any
) -> Any:
    wanted = [{"partition": i, "fetch_offset": at} | more for i, at in enumerate(offsets)]
    return answered(world, ask(world, 11, (topic, wanted)))


def answered(world: World, fields: dict[str, Any]) -> Any:
    handler = make(world)
    return parts(finish(handler, 11, start(handler, 11, fields)))


async def test_an_answer_is_small_and_asking_again_brings_the_rest(tmp_path: Path) -> None:
    world = await filled(tmp_path, *[10] * 8)
    offsets, rounds = [0] * 8, 0
    while sum(offsets) < 8 * 10:
        found = fetched(world, *offsets)
        sizes = [len(part.records) for part in found]
        assert 0 < sum(sizes) <= CHECKED_ANSWER_BYTES + BATCH_BYTES_MAX
        assert max(sizes) <= CHECKED_PARTITION_BYTES
        for index, part in enumerate(found):
            values = values_of(part.records)
            assert values == [VALUE] * len(values)
            offsets[index] += len(values)
        rounds += 1
    assert offsets == [10] * 8
    assert rounds < 10


async def test_other_topics_are_sent_as_the_client_wants_them(tmp_path: Path) -> None:
    world = await filled(tmp_path, *[10] * 8, topic="t")
    found = fetched(world, *[0] * 8, topic="t")
    assert [len(values_of(part.records)) for part in found] == [10] * 8


async def test_a_batch_above_the_bound_is_sent_even_from_a_later_partition(
    tmp_path: Path,
) -> None:
    world = await filled(tmp_path, 2, 1)
    large = b"l" * (CHECKED_PARTITION_BYTES + 1)
    world.append(REMOTE_LOG_METADATA_TOPIC, large, index=1)
    await turns()
    _, second = fetched(world, 0, 1)
    assert values_of(second.records) == [large]
    _, second = fetched(world, 0, 1, partition_max_bytes=len(large))
    assert len(second.records) == 0, "the client wants less"
    first, _ = fetched(world, 1, 1, partition_max_bytes=1)
    assert values_of(first.records) == [VALUE], "at least one batch"


async def test_bytes_that_are_there_are_not_waited_for(tmp_path: Path) -> None:
    world = await filled(tmp_path, 30)
    wanted = [{"partition": 0, "fetch_offset": 0}]
    fields = ask(world, 11, (REMOTE_LOG_METADATA_TOPIC, wanted), min_bytes=10**6, max_wait_ms=10**6)
    [found] = answered(world, fields)
    assert len(values_of(found.records)) == 5
