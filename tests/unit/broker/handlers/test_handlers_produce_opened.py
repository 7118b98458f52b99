"""Produce: batches that must be opened are opened by a thread, and nothing else waits for it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce import ProduceHandler
from broker.network.registry import CloseConnection
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import read_header
from kafka_protocol.records.records import build_batch
from local_log.log.opened_batches import SHORT_BYTES
from tests.support.sim.executors import SimExecutors
from tests.support.worlds.data_plane import (
    NOW_MS,
    World,
    batch,
    call,
    finish,
    iter_records_of,
    start,
)
from tests.support.worlds.local_log import read_bytes
from tests.support.worlds.pools import HeldPool

GZIP = 1
VALUE = b"x" * SHORT_BYTES


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.add_topic("plain", 2)
    world.add_topic("gzip", compression_type="gzip")
    world.add_topic("compact", cleanup_policy=frozenset({"compact"}))
    return world


@pytest.fixture
def threads() -> HeldPool:
    return HeldPool()


@pytest.fixture
def handler(world: World, threads: HeldPool) -> ProduceHandler:
    return ProduceHandler(world.replicas, executors=SimExecutors(threads))


def ask(*given: tuple[str, int, Any], acks: int = -1) -> dict[str, Any]:
    """Topic, partition and records."""
    data = [
        {"name": topic, "partition_data": [{"index": index, "records": records}]}
        for topic, index, records in given
    ]
    return {"acks": acks, "timeout_ms": 1_000, "topic_data": data}


def codes(answer: Any) -> list[int]:
    return [p.error_code for topic in answer.responses for p in topic.partition_responses]


def stored(world: World, topic: str) -> bytes:
    return bytes(read_bytes(world.log(topic), 0, 1 << 20))


def keyed(*keys: bytes | None, **options: Any) -> bytearray:
    return build_batch([(NOW_MS, key, VALUE, []) for key in keys], **options)


async def test_others_are_served_while_a_batch_is_compressed(
    world: World, handler: ProduceHandler, threads: HeldPool
) -> None:
    fields = ask(("plain", 0, batch(b"1")), ("gzip", 0, batch(VALUE)), ("plain", 1, batch(b"2")))
    answer = asyncio.ensure_future(start(handler, 9, fields))
    await threads.until_held(1)
    assert [world.log("plain", index).log_end_offset for index in (0, 1)] == [1, 1]
    assert world.log("gzip").log_end_offset == 0
    other = finish(handler, 9, start(handler, 9, ask(("plain", 0, batch(b"3")))))
    assert codes(other) == [0]
    assert not answer.done()
    threads.release()
    said = finish(handler, 9, await answer)
    assert codes(said) == [0, 0, 0]
    assert [topic.name for topic in said.responses] == ["plain", "gzip", "plain"]
    assert read_header(stored(world, "gzip")).codec == GZIP
    assert [record.value for record in iter_records_of(stored(world, "gzip"))] == [VALUE]


async def test_with_acks_0_it_is_appended_and_a_failure_ends_the_connection(
    world: World, handler: ProduceHandler, threads: HeldPool
) -> None:
    threads.is_holding = False
    answer = start(handler, 9, ask(("gzip", 0, batch(VALUE)), acks=0))
    assert await answer is None
    assert world.log("gzip").log_end_offset == 1
    with pytest.raises(CloseConnection):
        await start(handler, 9, ask(("compact", 0, keyed(None)), acks=0))


def test_wrong_records_that_a_thread_found_are_named(
    world: World, handler: ProduceHandler, threads: HeldPool
) -> None:
    threads.is_holding = False
    answer = call(handler, 9, ask(("compact", 0, keyed(b"k", None, b"k", None))))
    (said,) = answer.responses[0].partition_responses
    assert said.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in said.record_errors] == [1, 3]
    assert said.log_start_offset == 0
    assert codes(call(handler, 9, ask(("compact", 0, keyed(b"k", b"l"))))) == [0]


async def test_a_partition_that_goes_meanwhile_is_not_written(
    world: World, handler: ProduceHandler, threads: HeldPool
) -> None:
    old = world.log("gzip")
    answer = asyncio.ensure_future(start(handler, 9, ask(("gzip", 0, batch(VALUE)))))
    await threads.until_held(1)
    del world.topics["gzip"]
    world.apply()
    world.add_topic("gzip")
    threads.release()
    assert codes(finish(handler, 9, await answer)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert old.log_end_offset == world.log("gzip").log_end_offset == 0


async def test_it_is_appended_though_the_client_hangs_up(
    world: World, handler: ProduceHandler, threads: HeldPool
) -> None:
    answer = asyncio.ensure_future(start(handler, 9, ask(("gzip", 0, batch(VALUE)), acks=0)))
    await threads.until_held(1)
    answer.cancel()
    threads.release()
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.log("gzip").log_end_offset == 1
