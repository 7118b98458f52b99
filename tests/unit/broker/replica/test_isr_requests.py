"""What is asked of the controller, and when, while proposals, flushes and answers overlap."""

import asyncio
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.replica import isr_requests
from broker.replica.isr import AskedIsr, Proposal
from broker.replica.isr_requests import RETRY_MS, IsrRequests
from broker.replica.partition import Partition
from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.image.model import BrokerImage
from runtime.metrics import Counter
from tests.support.worlds.data_plane import LAG_MS, NODE, World
from tests.support.worlds.pools import HeldPool, turns

Answer = Mapping[ReplicaId, ErrorCode] | ErrorCode | Exception


class Asking:
    """Leads partitions of `t` with one follower each, and asks a controller that the test plays.

    Attributes:
        asked: the proposals of each question, by partition.
    """

    def __init__(self, directory: Path, partitions: int = 1, *, min_isr: int = 1) -> None:
        self.world = world = World(directory)
        world.brokers = {
            one: BrokerImage(id=one, epoch=10, incarnation_id=bytes(16), endpoints=(), fenced=False)
            for one in (NODE, 2)
        }
        world.add_topic("t", partitions, min_insync_replicas=min_isr)
        for index in range(partitions):
            world.change("t", index, replicas=(NODE, 2), isr=(NODE, 2), leader_epoch=4)
            world.append("t", b"1", index=index)
        self.asked: list[dict[int, Proposal]] = []
        self._open: deque[asyncio.Future[Answer]] = deque()
        self.pool = HeldPool()
        self.requests = IsrRequests(self._controller, world.scheduler, self.pool)
        world.leading.propose = self.requests.propose

    async def _controller(
        self, asked: Mapping[ReplicaId, AskedIsr]
    ) -> Mapping[ReplicaId, ErrorCode]:
        self.asked.append({one.partition: each.proposal for one, each in asked.items()})
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open.append(future)
        answer = await future
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(asked, answer) if isinstance(answer, ErrorCode) else answer

    async def answer(self, answer: Answer) -> None:
        """Answer the question that has waited longest."""
        self._open.popleft().set_result(answer)
        await turns()

    def partition(self, index: int) -> Partition:
        return self.world.replicas.require("t", index)

    async def lags(self, *indexes: int) -> list[Proposal]:
        """The followers of these have not fetched for too long; what is proposed."""
        self.world.clock.advance(LAG_MS + 1)
        for index in indexes:
            self.partition(index).review(self.world.leading.now_ms())
        await turns()
        return [self.proposal(index) for index in indexes]

    def proposal(self, index: int) -> Proposal:
        followers = self.partition(index).followers
        assert followers is not None
        assert followers.in_sync.proposal is not None
        return followers.in_sync.proposal


async def test_a_question_has_so_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isr_requests, "PARTITIONS_MAX", 2)
    asking = Asking(tmp_path, 5)
    await asking.lags(*range(5))
    for _ in range(3):
        await asking.answer(ErrorCode.NONE)
    assert [list(one) for one in asking.asked] == [[0, 1], [2, 3], [4]]


async def test_pauses_between_questions_grow_until_one_is_answered(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    await asking.lags(0)
    for pause_ms in (RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS):
        count = len(asking.asked)
        await asking.answer(NotControllerError("nobody leads"))
        asking.world.scheduler.advance(pause_ms - 1)
        await turns()
        assert len(asking.asked) == count
        asking.world.scheduler.advance(1)
        await turns()
        assert len(asking.asked) == count + 1
    await asking.requests.stop()


@pytest.mark.parametrize("answer", [{}, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_what_an_answer_does_not_decide_may_come_about_and_is_asked_again(
    tmp_path: Path, answer: Answer
) -> None:
    asking = Asking(tmp_path)
    (proposal,) = await asking.lags(0)
    await asking.answer(answer)
    asking.world.scheduler.advance(RETRY_MS)
    await turns()
    assert asking.asked == [{0: proposal}] * 2
    await asking.answer(ErrorCode.INELIGIBLE_REPLICA)
    followers = asking.partition(0).followers
    assert followers is not None
    assert followers.in_sync.maximal_isr == {NODE, 2}
    assert followers.in_sync._doubtful == {(NODE,)}


@pytest.mark.parametrize(
    ("answer", "failures"),
    [
        (ErrorCode.NONE, 0),
        ({}, 0),
        (NotControllerError("nobody leads"), 0),
        (ErrorCode.INELIGIBLE_REPLICA, 1),
        (ErrorCode.FENCED_LEADER_EPOCH, 1),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1),
    ],
)
@pytest.mark.parametrize("is_overtaken", [False, True])
async def test_an_error_for_what_is_still_proposed_is_counted_as_a_failed_update(
    tmp_path: Path, answer: Answer, failures: int, *, is_overtaken: bool
) -> None:
    asking = Asking(tmp_path)
    asking.world.leading.failures = counted = Counter("c", "text")
    await asking.lags(0)
    if is_overtaken:
        asking.world.change("t", isr=(NODE, 2))  # the image says something newer
    await asking.answer(answer)
    assert counted.value() == (0 if is_overtaken else failures)
    await asking.requests.stop()


async def test_a_proposal_that_ends_leadership_counts_until_the_image_changes(
    tmp_path: Path,
) -> None:
    """It completed a reassignment: the next leader may lack what the ISR of before has."""
    asking = Asking(tmp_path)
    asking.world.change("t", isr=(NODE,))
    partition = asking.partition(0)
    assert partition.followers is not None
    in_sync = partition.followers.in_sync
    end = partition.log.log_end_offset
    partition.followers.fetched(2, broker_epoch=10, offset=end, log_start_offset=0)
    await turns()
    joined = asking.proposal(0)
    assert joined.members == (NODE, 2)
    await asking.answer(ErrorCode.NEW_LEADER_ELECTED)
    asking.world.scheduler.advance(10 * RETRY_MS)
    await turns()
    assert (len(asking.asked), in_sync.proposal, in_sync.maximal_isr) == (1, joined, {NODE, 2})
    asking.world.change("t", isr=(2,), leader=2, replicas=(2, NODE))
    assert partition.followers is None
    await asking.requests.stop()


async def test_a_later_proposal_is_asked_for_where_an_earlier_one_had_no_answer(
    tmp_path: Path,
) -> None:
    asking = Asking(tmp_path)
    await asking.lags(0)
    asking.world.change("t", isr=(NODE, 2))  # the image says something newer
    (later,) = await asking.lags(0)
    await asking.answer(NotControllerError("nobody leads"))
    asking.world.scheduler.advance(RETRY_MS)
    await turns()
    assert asking.asked[1:] == [{0: later}]
    await asking.requests.stop()


async def test_a_flush_for_an_earlier_proposal_does_not_replace_a_later_one(
    tmp_path: Path,
) -> None:
    asking = Asking(tmp_path, 2, min_isr=2)
    await asking.lags(0)
    assert (asking.pool.held, asking.asked) == (1, [])
    for index in (0, 1):
        followers = asking.partition(index).followers
        assert followers is not None
        followers.set_min_insync_replicas(1)
    await asking.lags(1)
    asking.world.change("t", isr=(NODE, 2))
    (later,) = await asking.lags(0)
    asking.pool.release()  # the earlier one is on the disk, and the controller is busy
    await turns()
    await asking.answer(ErrorCode.NONE)
    assert asking.asked[1:] == [{0: later}]
    await asking.requests.stop()


async def test_what_the_image_has_overtaken_is_not_asked_for(tmp_path: Path) -> None:
    asking = Asking(tmp_path, 2)
    await asking.lags(0)
    await asking.lags(1)
    asking.world.change("t", 1, isr=(NODE,))
    await asking.answer(ErrorCode.NONE)
    assert [list(one) for one in asking.asked] == [[0]]


async def test_nothing_is_asked_for_after_a_stop(tmp_path: Path) -> None:
    asking = Asking(tmp_path, min_isr=2)
    await asking.lags(0)
    assert asking.pool.held == 1
    await asking.requests.stop()
    asking.pool.release()
    await turns()
    assert asking.asked == []
