"""Questions of the tier wait for an image that no acknowledged change can be missing in."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.remote.confirmed_images import ASK_AGAIN_MS, DEADLINE_MS, POLL_AGAIN_MS, ConfirmedImages
from kafka_protocol.errors import ApiError, ErrorCode
from metadata_topic.quorum.node import MetadataNode
from tests.support.sim.ports import simulated
from tests.support.worlds.pools import turns

LEADER = 2


class Quorum:
    """A node that a test moves on, and the questions to the leader that a test answers."""

    def __init__(self) -> None:
        self.ports = simulated()
        self.asked: list[asyncio.Future[Any]] = []
        self.given_up_ms: list[int] = []
        self.leader_epoch, self.high_watermark = 5, 100
        self.image = SimpleNamespace(provenance=SimpleNamespace(end_offset=100))
        self.images = ConfirmedImages(cast("MetadataNode", self), self._ask, self.ports)

    async def _ask(self, timeout_ms: int) -> Any:
        self.given_up_ms.append(self.ports.clock.monotonic_ms() + timeout_ms)
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]

    async def question(self) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(self.images.confirm())
        await turns()
        return task

    async def answer(self, epoch: int, end: int, *, error: ErrorCode = ErrorCode.NONE) -> None:
        """The last question that was sent gets its answer."""
        voters = [SimpleNamespace(replica_id=LEADER, log_end_offset=end)]
        self.asked[-1].set_result(
            SimpleNamespace(
                error_code=error, leader_id=LEADER, leader_epoch=epoch, current_voters=voters
            )
        )
        await turns()

    async def reaches(self, end: int, *, epoch: int = 5) -> None:
        self.leader_epoch, self.high_watermark = epoch, end
        self.image.provenance.end_offset = end
        await self.passes(POLL_AGAIN_MS)

    async def passes(self, step_ms: int) -> None:
        self.ports.scheduler.advance(step_ms)
        await turns()


async def test_a_high_watermark_that_is_there_already_is_no_answer() -> None:
    quorum = Quorum()
    question = await quorum.question()
    await quorum.answer(5, 100)
    await quorum.passes(10 * POLL_AGAIN_MS)
    assert not question.done()
    await quorum.reaches(101)
    assert question.done()
    assert len(quorum.asked) == 1


async def test_a_high_watermark_that_the_image_has_not_reached_is_no_answer() -> None:
    quorum = Quorum()
    question = await quorum.question()
    await quorum.answer(5, 101)
    quorum.high_watermark = 102
    await quorum.passes(POLL_AGAIN_MS)
    assert not question.done()
    await quorum.reaches(102)
    assert question.done()


async def test_a_question_that_is_given_up_leaves_those_that_share_it() -> None:
    quorum = Quorum()
    first = await quorum.question()
    given_up, other = [await quorum.question() for _ in range(2)]
    given_up.cancel()
    await quorum.answer(5, 99)
    assert first.done()
    await quorum.answer(5, 99)
    assert not other.cancelled()
    assert other.done()


async def test_questions_share_one_that_is_sent_after_them() -> None:
    quorum = Quorum()
    first = [await quorum.question()]
    late = [await quorum.question() for _ in range(3)]
    assert len(quorum.asked) == 1
    await quorum.answer(5, 99)
    assert [one.done() for one in first + late] == [True, False, False, False]
    assert len(quorum.asked) == 2
    await quorum.answer(5, 100)
    await quorum.reaches(101)
    assert all(one.done() for one in late)
    assert len(quorum.asked) == 2


async def test_a_change_of_epoch_begins_again() -> None:
    quorum = Quorum()
    question = await quorum.question()
    await quorum.answer(5, 100)
    await quorum.reaches(105, epoch=6)
    assert not question.done()
    await quorum.passes(ASK_AGAIN_MS)
    await quorum.answer(6, 105)
    assert not question.done()
    await quorum.reaches(106, epoch=6)
    assert question.done()


async def test_an_answer_without_the_leaders_end_is_asked_for_again() -> None:
    quorum = Quorum()
    question = await quorum.question()
    await quorum.answer(5, 90, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not question.done()
    await quorum.passes(ASK_AGAIN_MS)
    quorum.asked[-1].set_result(None)
    await turns()
    await quorum.passes(ASK_AGAIN_MS)
    await quorum.answer(5, 90)
    assert question.done()
    assert len(quorum.asked) == 3


async def test_a_question_that_stays_open_fails_and_the_next_one_is_asked() -> None:
    quorum = Quorum()
    question = await quorum.question()
    await quorum.answer(5, 100)
    for _ in range(DEADLINE_MS // 1_000 + 1):
        await quorum.passes(1_000)
    with pytest.raises(ApiError, match=r"idle\.interval\.ms from 1 to 10000") as raised:
        await question
    assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
    again = await quorum.question()
    await quorum.answer(5, 99)
    assert again.done()


async def test_no_controller_is_asked_beyond_the_deadline() -> None:
    quorum = Quorum()
    ends_ms = quorum.ports.clock.monotonic_ms() + DEADLINE_MS
    question = await quorum.question()
    while not question.done():
        if not quorum.asked[-1].done():
            quorum.asked[-1].set_result(None)
        await turns()
        await quorum.passes(ASK_AGAIN_MS)
    assert max(quorum.given_up_ms) == ends_ms
    with pytest.raises(ApiError, match="no active controller answers"):
        await question
