"""A fetch of very many partitions looks, waits, wakes and ends in iterations of the loop."""

import asyncio
import gc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.fetch import FetchHandler
from broker.handlers.fetch_read import SLICE_PARTITIONS
from broker.replica.fetch_passes import FetchPasses
from broker.replica.fetch_session import FetchContext
from kafka_protocol.types import TopicPartition
from tests.support.worlds.data_plane import World, finish, start
from tests.support.worlds.fetch import ask, make, parts
from tests.support.worlds.local_log import read_bytes
from tests.support.worlds.pools import turns

MANY = 3 * SLICE_PARTITIONS + 10
VERSION = 12


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.add_topic("t", MANY)
    return world


def begin(
    world: World, handler: FetchHandler, *, count: int = MANY, **more: Any
) -> "asyncio.Future[Any]":
    fields = ask(world, VERSION, ("t", [{"partition": index} for index in range(count)]))
    defaults = {"max_wait_ms": 1_000, "session_epoch": -1}
    return asyncio.ensure_future(start(handler, VERSION, fields | defaults | more))


def answer(handler: FetchHandler, done: "asyncio.Future[Any]") -> Any:
    assert done.done()
    return finish(handler, VERSION, done.result())


class Turns:
    """What each iteration of the loop does to a number."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hosted = list(world.replicas.partitions.values())

    def looks(self) -> int:
        return int(self._hosted[0].counters.fetch_requests.value)

    def watched(self) -> int:
        return sum(len(each.watches) for each in self._hosted)

    async def count(self, number: Any, count: int = 60) -> list[int]:
        """How much it changes in each of `count` turns, where it does."""
        seen = [number()]
        for _ in range(count):
            await asyncio.sleep(0)
            seen.append(number())
        return [abs(after - before) for before, after in pairwise(seen) if after != before]


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_it_is_parked_in_turns(world: World, session_epoch: int) -> None:
    handler, seen = make(world), Turns(world)
    fetch = begin(world, handler, session_epoch=session_epoch)
    assert seen.watched() == SLICE_PARTITIONS
    steps = await seen.count(seen.watched)
    assert steps == [SLICE_PARTITIONS] * 2 + [10]
    assert not fetch.done()
    fetch.cancel()


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_bytes_in_all_its_partitions_are_looked_at_in_turns(
    world: World, session_epoch: int
) -> None:
    handler, seen = make(world), Turns(world)
    fetch = begin(world, handler, session_epoch=session_epoch)
    await turns()
    for index in range(MANY):
        world.append("t", b"new", index=index)
    steps = await seen.count(seen.looks)
    assert steps == [SLICE_PARTITIONS] * 3 + [10]
    assert all(part.records for part in parts(answer(handler, fetch)))


async def test_its_end_leaves_the_partitions_in_turns(world: World) -> None:
    handler, seen = make(world), Turns(world)
    fetch = begin(world, handler)
    await turns()
    world.append("t", b"new", index=7)
    steps = await seen.count(seen.watched)
    assert sum(steps) == MANY
    assert max(steps) <= SLICE_PARTITIONS
    found = [part.partition_index for part in parts(answer(handler, fetch)) if part.records]
    assert found == [7]


async def test_the_answer_is_chosen_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    handler, chosen = make(world), 0
    to_answer = FetchContext.to_answer

    def note(context: FetchContext, reads: Any) -> Any:
        nonlocal chosen
        found = to_answer(context, reads)
        chosen += len(found)
        return found

    monkeypatch.setattr(FetchContext, "to_answer", note)
    fetch = begin(world, handler, session_epoch=0, max_wait_ms=0)
    steps = await Turns(world).count(lambda: chosen)
    assert steps == [SLICE_PARTITIONS] * 3 + [10]
    assert len(parts(answer(handler, fetch))) == MANY


@pytest.mark.parametrize("comes_late", [False, True])
async def test_few_looks_become_many_where_all_has_changed(world: World, comes_late: bool) -> None:
    """Also where enough bytes come while it looks for the last time: its turns stay its turns."""
    handler, seen = make(world), Turns(world)
    first = answer(handler, await ended(begin(world, handler, session_epoch=0, max_wait_ms=0)))
    session = {"session_id": first.session_id, "topics": []}
    begin_next = {"session_epoch": 1, "min_bytes": 1_000_000} | session
    fields = ask(world, VERSION) | {"max_wait_ms": 1_000} | begin_next
    fetch = asyncio.ensure_future(start(handler, VERSION, fields))
    await turns(3)
    for index in range(MANY):
        world.append("t", b"new", index=index)
    assert await seen.count(seen.looks) == []  # there are not enough bytes
    looked = seen.looks()
    world.scheduler.advance(1_001)
    assert seen.looks() == looked + SLICE_PARTITIONS
    if comes_late:
        world.append("t", b"late", index=0)
    steps = await seen.count(seen.looks)
    assert steps == [SLICE_PARTITIONS] * 2 + [10]
    assert len(parts(answer(handler, fetch))) == MANY


async def test_bytes_that_come_while_a_woken_fetch_looks_count_for_its_wait(world: World) -> None:
    handler, seen = make(world), Turns(world)
    fetch = begin(world, handler, min_bytes=500_000)
    await turns(10)
    for index in range(MANY):
        world.append("t", b"new", index=index)
    assert await seen.count(seen.looks) == []  # there are not enough bytes
    first = world.replicas.partitions[TopicPartition("t", 0)]
    looked = seen.looks()
    for watch in list(first.watches):
        watch.on_change(first)
    await turns(2)
    assert looked < seen.looks() < looked + MANY
    world.append("t", bytes(600_000), index=0)
    await turns(30)  # and no time passes
    assert len(parts(answer(handler, fetch))) == MANY


async def ended(fetch: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
    await turns(100)
    return fetch


@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("index", [0, SLICE_PARTITIONS, MANY - 1])
async def test_what_comes_between_its_turns_is_not_missed(
    world: World, after: int, index: int
) -> None:
    handler = make(world)
    fetch = begin(world, handler)
    await turns(after)
    world.append("t", b"new", index=index)
    await turns()
    found = [part.partition_index for part in parts(answer(handler, fetch)) if part.records]
    assert found == [index]


@pytest.mark.parametrize("after", range(6))
async def test_what_comes_between_the_turns_of_its_wake_up_counts(world: World, after: int) -> None:
    handler = make(world)
    world.append("t", b"old")
    size = len(read_bytes(world.log("t"), 0, 100))
    fetch = begin(world, handler, min_bytes=4 * size)
    await turns()
    world.append("t", b"new", index=1)
    world.change("t", 2, leader_epoch=9)  # wakes it, and brings no bytes
    await turns(after)
    world.append("t", b"new", index=3)
    world.append("t", b"new", index=MANY - 1)
    await turns()
    found = [part.partition_index for part in parts(answer(handler, fetch)) if part.records]
    assert found == [0, 1, 3, MANY - 1]


async def test_one_whose_time_is_up_answers_with_what_is_there(world: World) -> None:
    handler = make(world)
    world.append("t", b"one", index=5)
    fetch = begin(world, handler, min_bytes=1_000_000)
    await turns()
    assert not fetch.done()
    world.scheduler.advance(1_001)
    await turns()
    found = [part.partition_index for part in parts(answer(handler, fetch)) if part.records]
    assert found == [5]


@pytest.mark.parametrize("after", [2, 50])
async def test_one_whose_client_is_gone_watches_nothing(world: World, after: int) -> None:
    handler, seen = make(world), Turns(world)
    fetch = begin(world, handler)
    await turns(after)
    assert seen.watched()
    fetch.cancel()
    await turns()
    assert seen.watched() == 0
    assert not world.replicas.partitions[TopicPartition("t", 0)].waiters


@pytest.mark.parametrize("count", [1, MANY])
async def test_one_that_fails_leaves_nothing_to_the_collector(
    world: World, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(FetchPasses, "answer", None)
    fetch = begin(world, make(world), count=count)
    await turns()
    gc.collect()
    gc.disable()
    try:
        world.append("t", b"new")
        await turns()
        assert isinstance(fetch.exception(), TypeError)
        del fetch
        assert not any(isinstance(one, FetchPasses) for one in gc.get_objects())
        assert not any(each.watches for each in world.replicas.partitions.values())
    finally:
        gc.enable()
