"""A fetch session holds no partition that is gone, or that it does not ask for any more."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.fetch import FetchHandler
from kafka_protocol.types import TopicPartition
from tests.support.worlds.data_plane import World, finish, start
from tests.support.worlds.fetch import ask, make
from tests.support.worlds.pools import turns

VERSION = 12
TOPICS = ("kept", "other")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for name in TOPICS:
        world.add_topic(name)
    return world


async def parked(world: World, handler: FetchHandler, **more: Any) -> "asyncio.Future[Any]":
    """Begin a session of both topics, and a second fetch of it, which waits."""
    asked = [(name, [{"partition": 0}]) for name in TOPICS]
    first = start(handler, VERSION, ask(world, VERSION, *asked, session_epoch=0))
    session_id = finish(handler, VERSION, first).session_id
    fields = {"session_id": session_id, "session_epoch": 1, "max_wait_ms": 1_000} | more
    waits = asyncio.ensure_future(start(handler, VERSION, ask(world, VERSION, **fields)))
    await turns()
    assert not waits.done()
    return waits


async def test_a_session_lets_a_deleted_partition_go(world: World) -> None:
    handler = make(world)
    waits = await parked(world, handler)
    partition = world.replicas.partitions[TopicPartition("other", 0)]
    assert partition.watches
    del world.topics["other"]
    world.apply()
    await turns()
    assert waits.done()
    assert len(handler.sessions) == 1
    assert not partition.watches


async def test_a_session_lets_a_forgotten_partition_go(world: World) -> None:
    handler = make(world)
    forgotten = [{"topic": "other", "partitions": [0]}]
    waits = await parked(world, handler, forgotten_topics_data=forgotten)
    partition = world.replicas.partitions[TopicPartition("other", 0)]
    world.append("other", b"busy")
    await turns()
    assert not partition.watches
    assert not waits.done()
    world.append("kept", b"news")
    await turns()
    assert waits.done()
