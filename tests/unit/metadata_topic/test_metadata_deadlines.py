"""A disk that hangs holds nobody for ever: callers hear of it, and a stop ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.quorum.deadlines import DecisionTimedOut
from metadata_topic.quorum.node import MetadataUnavailable
from runtime.executors import InlinePool
from tests.support.worlds.metadata_home import Home, topics

P = ParamSpec("P")
T = TypeVar("T")


class HangingPool(InlinePool):
    """Runs nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.released = asyncio.Event()

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.waiting += 1
        await self.released.wait()
        self.waiting -= 1
        return fn(*args, **kwargs)


class Hung:
    def __init__(self, home: Home) -> None:
        self.pool = HangingPool()
        self.scheduler = home.ports.scheduler
        self.node = home.node(pool=self.pool)
        self.node.start()

    async def begin(self, name: str, timeout_ms: int = 0) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(self.node.submit(topics(name), timeout_ms=timeout_ms))
        await self.turn()
        return task

    async def turn(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_a_caller_hears_in_time_that_the_disk_hangs_and_the_decision_is_carried_through(
    home: Home,
) -> None:
    hung = Hung(home)
    asked = await hung.begin("a", timeout_ms=500)
    assert hung.pool.waiting == 1
    hung.scheduler.advance(499)
    await hung.turn()
    assert not asked.done()
    hung.scheduler.advance(1)
    with pytest.raises(DecisionTimedOut) as caught:
        await asked
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
    hung.pool.released.set()
    await hung.turn()
    assert set(hung.node.image.topics_by_name) == {"a"}
    await hung.node.close()
    assert set((await home.lived()).image.topics_by_name) == {"a"}


async def test_what_waits_for_its_turn_until_its_time_is_over_is_not_taken(home: Home) -> None:
    hung = Hung(home)
    first = await hung.begin("a")
    second = await hung.begin("b", timeout_ms=500)
    third = await hung.begin("c", timeout_ms=5_000)
    hung.scheduler.advance(500)
    with pytest.raises(DecisionTimedOut):
        await second
    hung.pool.released.set()
    await asyncio.gather(first, third)
    assert set(hung.node.image.topics_by_name) == {"a", "c"}
    await hung.node.close()
    assert set((await home.lived()).image.topics_by_name) == {"a", "c"}


async def test_a_caller_that_does_not_say_waits_half_a_minute(home: Home) -> None:
    hung = Hung(home)
    asked = await hung.begin("a", timeout_ms=-1)
    hung.scheduler.advance(29_999)
    await hung.turn()
    assert not asked.done()
    hung.scheduler.advance(1)
    with pytest.raises(DecisionTimedOut, match="30000 ms"):
        await asked


async def test_a_stop_does_not_wait_for_a_hanging_disk_for_ever(home: Home) -> None:
    hung = Hung(home)
    asked = await hung.begin("a")
    closing = asyncio.ensure_future(hung.node.close())
    await hung.turn()
    assert not closing.done()
    hung.scheduler.advance(30_000)
    with pytest.raises(MetadataUnavailable, match="did not stop in time"):
        await closing
    assert isinstance(hung.node.failure, DecisionTimedOut)
    with pytest.raises(DecisionTimedOut):
        await asked


async def test_a_decision_that_is_cancelled_from_within_ends_the_node(home: Home) -> None:
    """The loop cancels its tasks when it ends; what they had written is not known then."""

    hung = Hung(home)
    asked = await hung.begin("a")
    inner = [task for task in asyncio.all_tasks() if "_decide" in repr(task.get_coro())]
    assert len(inner) == 1
    inner[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert isinstance(hung.node.failure, asyncio.CancelledError)
    with pytest.raises(MetadataUnavailable):
        await hung.node.submit(topics("b"))
    assert set((await home.lived()).image.topics_by_name) == {"a"}
