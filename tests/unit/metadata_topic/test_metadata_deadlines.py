"""A disk that hangs holds nobody for ever: callers hear of it, and a stop ends."""

import asyncio
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.quorum.active.submit import DecisionTimedOut
from metadata_topic.quorum.node import MetadataUnavailable
from tests.support.worlds.metadata_home import Home, topics
from tests.support.worlds.pools import HeldPool, turns


class Hung:
    """A node whose disk hangs as soon as it is ready."""

    def __init__(self, home: Home) -> None:
        self.pool = HeldPool(is_holding=False)
        self.scheduler = home.ports.scheduler
        self.node = home.node(pool=self.pool)

    async def ready(self) -> "Hung":
        await self.node.begin()
        self.pool.is_holding = True
        return self

    async def begin(self, name: str, timeout_ms: int = 0) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(self.node.submit(topics(name), timeout_ms=timeout_ms))
        await turns()
        return task

    def heal(self) -> None:
        self.pool.is_holding = False
        self.pool.release()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_a_caller_hears_in_time_that_the_disk_hangs_and_the_decision_is_carried_through(
    home: Home,
) -> None:
    hung = await Hung(home).ready()
    asked = await hung.begin("a", timeout_ms=500)
    assert hung.pool.held == 1
    hung.scheduler.advance(499)
    await turns()
    assert not asked.done()
    hung.scheduler.advance(1)
    with pytest.raises(DecisionTimedOut) as caught:
        await asked
    assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
    hung.heal()
    await turns()
    assert set(hung.node.image.topics_by_name) == {"a"}
    await hung.node.close()
    assert set((await home.lived()).image.topics_by_name) == {"a"}


async def test_what_waits_for_its_turn_until_its_time_is_over_is_not_taken(
    home: Home,
) -> None:
    hung = await Hung(home).ready()
    asked = [asyncio.ensure_future(hung.node.submit(topics("a"), timeout_ms=500))]
    await turns(2)
    assert hung.node._replica.controller.decision_count == 1
    # It is asked for, and not taken yet when the clock moves: the loop was busy for so long.
    hung.scheduler.advance(500)
    with pytest.raises(DecisionTimedOut, match="not carried out"):
        await asked[0]
    hung.heal()
    await hung.node.submit(topics("b"))
    await hung.node.close()
    assert set((await home.lived()).image.topics_by_name) == {"b"}


async def test_a_caller_that_does_not_say_waits_half_a_minute(home: Home) -> None:
    hung = await Hung(home).ready()
    asked = await hung.begin("a", timeout_ms=-1)
    hung.scheduler.advance(29_999)
    await turns()
    assert not asked.done()
    hung.scheduler.advance(1)
    with pytest.raises(DecisionTimedOut, match="not committed in time"):
        await asked


async def test_a_stop_does_not_wait_for_a_hanging_disk_for_ever(home: Home) -> None:
    hung = await Hung(home).ready()
    asked = await hung.begin("a", timeout_ms=60_000)
    closing = asyncio.ensure_future(hung.node.close())
    await turns()
    assert not closing.done()
    hung.scheduler.advance(30_000)
    with pytest.raises(MetadataUnavailable, match="did not stop in time"):
        await closing
    assert isinstance(hung.node.failure, DecisionTimedOut)
    with pytest.raises(MetadataUnavailable):
        await asked


async def test_a_stop_whose_own_flush_hangs_ends_too(home: Home) -> None:
    hung = await Hung(home).ready()
    closing = asyncio.ensure_future(hung.node.close())
    await turns()
    assert not closing.done()
    hung.scheduler.advance(30_000)
    with pytest.raises(MetadataUnavailable, match="did not stop in time"):
        await closing
