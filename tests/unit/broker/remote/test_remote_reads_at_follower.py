"""Remote reads of a broker that follows the partition: what it asks, and which answers it takes."""

import asyncio
from typing import Any

import pytest

from broker.replica.errors import NotLeaderOrFollower, ReplicaNotAvailable
from kafka_protocol.errors import ErrorCode
from rlm.link.messages import Read, Released
from tests.support.worlds.remote_reads import Bench, code_of

NINE, SIX = ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER


def at_follower() -> Bench:
    found = Bench()
    found.hosted.is_leader = False
    return found


def question(bench: Bench) -> Read:
    found = bench.tier.asked[-1][0]
    assert isinstance(found, Read)
    return found


async def ended(future: "asyncio.Future[Any]") -> int:
    await asyncio.wait([future])
    return code_of(future)


async def test_its_tier_is_asked_to_catch_up_and_for_nothing_beyond() -> None:
    bench = at_follower()
    future = bench.read(10)
    asked = question(bench)
    assert (asked.at_follower, asked.read_ahead_bytes) == (True, 0)
    assert (asked.offset_epoch, asked.epoch_end) == (1, 40)
    bench.answer()
    assert bytes((await future).regions[0]) == b"batches"
    bench.hosted.is_leader = True
    bench.read(10)
    assert (question(bench).at_follower, question(bench).read_ahead_bytes > 0) == (False, True)


async def test_a_question_ends_at_what_is_visible() -> None:
    bench = at_follower()
    bench.hosted.visible = 30
    bench.read(10)
    assert question(bench).epoch_end == 30
    bench.read(10, read_committed=True)
    assert question(bench).epoch_end == 25


async def test_what_the_follower_may_not_answer_is_not_asked() -> None:
    bench = at_follower()
    bench.hosted.refusal = ReplicaNotAvailable("ask the leader")
    assert await ended(bench.read(10)) == NINE
    assert not bench.tier.asked


async def test_a_consumer_before_version_11_is_sent_to_the_leader() -> None:
    bench = at_follower()
    assert await ended(bench.read(10, may_ask_followers=False)) == SIX
    assert not bench.tier.asked


@pytest.mark.parametrize("change", ["leads", "epoch", "log"])
async def test_an_answer_under_another_role_is_dropped_and_released(change: str) -> None:
    bench = at_follower()
    future = bench.read(10)
    if change == "leads":
        bench.hosted.is_leader = True
    elif change == "epoch":
        bench.hosted.leader_epoch = 5
    else:
        bench.hosted.refusal = NotLeaderOrFollower("it begins again")
    bench.answer()
    assert await ended(future) == SIX
    bench.tier.asked.clear()
    del future
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.tier.told == [Released([77])]


async def test_a_leader_that_follows_now_drops_what_it_asked_as_leader() -> None:
    bench = at_follower()
    bench.hosted.is_leader = True
    future = bench.read(10)
    bench.hosted.is_leader = False
    bench.answer()
    assert await ended(future) == SIX


async def test_a_tier_that_is_not_caught_up_gives_9() -> None:
    bench = at_follower()
    future = bench.read(10)
    bench.answer(regions=[], error=int(NINE), message="not caught up")
    assert await ended(future) == NINE
