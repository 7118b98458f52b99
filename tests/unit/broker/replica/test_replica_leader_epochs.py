"""A broker asks for higher leader epochs: together, again where there was no answer, and not for
ever."""

import asyncio
from collections.abc import Mapping

import pytest

from broker.replica.leader_epochs import (
    COLLECT_MS,
    PARTITIONS_MAX,
    PAUSE_MAX_MS,
    PAUSE_MS,
    RAISES_MAX,
    LeaderEpochRequests,
)
from kafka_protocol.errors import KafkaError
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import (
    FencedLeaderEpochError,
    InvalidRequestError,
)
from metadata_topic.controller.leader_epochs import UsedEpoch
from metadata_topic.quorum.active.submit import DecisionTimedOut
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.pools import turns

A, B, C = (ReplicaId(b"t" * 16, index) for index in range(3))


class Scene:
    """A controller that answers when it is told to."""

    def __init__(self) -> None:
        self.scheduler = ManualScheduler(ManualClock())
        self.sent: list[Mapping[ReplicaId, UsedEpoch]] = []
        self.answers: list[asyncio.Future[Mapping[ReplicaId, KafkaError]]] = []
        self.refused: list[ReplicaId] = []
        self.requests = LeaderEpochRequests(self.controller, self.scheduler)
        self.requests.on_refused = self.refused.append

    async def controller(
        self, found: Mapping[ReplicaId, UsedEpoch]
    ) -> Mapping[ReplicaId, KafkaError]:
        self.sent.append(dict(found))
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    def ask(self, replica: ReplicaId = A, leader_epoch: int = 4, used: int = 9) -> str:
        return self.requests.ask(replica, leader_epoch=leader_epoch, used=used)

    async def answer(self, error: Exception | None = None, **refused: KafkaError) -> None:
        if error is None:
            names = {"a": A, "b": B, "c": C}
            self.answers[-1].set_result({names[name]: why for name, why in refused.items()})
        else:
            self.answers[-1].set_exception(error)
        await turns()


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_questions_that_come_meanwhile_go_together_one_request_at_a_time(
    scene: Scene,
) -> None:
    scene.ask(A)
    await turns()
    scene.ask(B)
    scene.ask(C)
    scene.ask(B)
    await turns()
    assert scene.sent == [{A: UsedEpoch(4, 9)}]
    await scene.answer()
    scene.scheduler.advance(COLLECT_MS)
    await turns()
    assert scene.sent[1:] == [{B: UsedEpoch(4, 9), C: UsedEpoch(4, 9)}]


async def test_findings_that_come_one_by_one_are_collected_before_they_are_sent(
    scene: Scene,
) -> None:
    scene.ask(A)
    await turns()
    await scene.answer()
    scene.ask(B)
    await turns()
    scene.scheduler.advance(COLLECT_MS - 1)
    scene.ask(C)
    await turns()
    assert len(scene.sent) == 1
    scene.scheduler.advance(1)
    await turns()
    assert scene.sent[1:] == [{B: UsedEpoch(4, 9), C: UsedEpoch(4, 9)}]
    await scene.answer()
    scene.scheduler.advance(COLLECT_MS)
    await turns()
    late = ReplicaId(b"t" * 16, 7)
    scene.ask(late)
    await turns()
    assert list(scene.sent[-1]) == [late], "after a pause without findings it goes at once"


async def test_many_partitions_are_asked_for_in_bounded_requests_in_order(
    scene: Scene,
) -> None:
    many = [ReplicaId(b"t" * 16, index) for index in range(2 * PARTITIONS_MAX + 1)]

    for replica in many:
        scene.ask(replica)
    await turns()
    for count in (1, 2, 3):
        assert len(scene.sent) == count
        await scene.answer()
        await turns()
        assert len(scene.sent) == {1: 2, 2: 2, 3: 3}[count], "a pause is for few"
        if count == 2:
            scene.scheduler.advance(COLLECT_MS)
            await turns()
    assert [len(each) for each in scene.sent] == [PARTITIONS_MAX, PARTITIONS_MAX, 1]
    assert [replica for each in scene.sent for replica in each] == many


async def test_a_repeated_question_sends_one_request_and_then_pauses(
    scene: Scene,
) -> None:
    for _ in range(3):
        assert scene.ask() == ""
        await turns()
    await scene.answer()
    assert scene.ask() == ""  # the image is not there yet, or there is another higher one
    await turns()
    for pause_ms, sent in ((PAUSE_MS - 1, 1), (1, 2)):
        scene.scheduler.advance(pause_ms)
        await turns()
        assert len(scene.sent) == sent


async def test_an_unanswered_request_is_repeated_with_growing_pauses(
    scene: Scene,
) -> None:
    scene.ask()
    await turns()
    for expected_ms in (PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS):
        count = len(scene.sent)
        await scene.answer(DecisionTimedOut("not in time"))
        scene.scheduler.advance(expected_ms - 1)
        await turns()
        assert len(scene.sent) == count
        scene.scheduler.advance(1)
        await turns()
        assert len(scene.sent) == count + 1
    for _ in range(20):
        await scene.answer(DecisionTimedOut("not in time"))
        scene.scheduler.advance(PAUSE_MAX_MS)
        await turns()
    assert len(scene.sent) == 24, "it never ends"


@pytest.mark.parametrize(
    "refused",
    [{}, {"a": FencedLeaderEpochError("it leads under 7")}, {"a": InvalidRequestError("damage")}],
)
async def test_what_is_asked_anew_while_the_answer_is_out_is_asked_after_it(
    scene: Scene,
    refused: dict[str, KafkaError],
) -> None:
    scene.ask(leader_epoch=5, used=50)
    await turns()
    assert scene.ask(leader_epoch=7, used=50) == ""  # the image came, and nobody asks again
    await scene.answer(**refused)
    assert scene.refused == [], "that was the answer to the former question"
    scene.scheduler.advance(PAUSE_MS)
    await turns()
    assert scene.sent[1:] == [{A: UsedEpoch(7, 50)}]


async def test_a_question_that_fails_for_any_reason_is_asked_again(scene: Scene) -> None:
    scene.ask()
    await turns()
    await scene.answer(OSError("no space left"))
    scene.scheduler.advance(PAUSE_MS)
    await turns()
    assert len(scene.sent) == 2


async def test_a_refused_request_is_not_repeated_and_its_reason_is_reported(
    scene: Scene,
) -> None:
    scene.ask(used=2**31 - 1)
    await turns()
    await scene.answer(a=InvalidRequestError("that is damage"))
    assert scene.refused == [A]
    assert "that is damage" in scene.ask(used=2**31 - 1)
    scene.scheduler.advance(10 * PAUSE_MAX_MS)
    await turns()
    assert len(scene.sent) == 1
    assert scene.ask(used=9) == "", "another question"
    scene.scheduler.advance(PAUSE_MS)
    await turns()
    assert len(scene.sent) == 2


async def test_what_the_controller_refuses_is_not_held_against_another_question(
    scene: Scene,
) -> None:
    scene.ask(used=2**31 - 1)
    await turns()
    assert scene.ask(used=9) == ""
    await scene.answer(a=InvalidRequestError("that is damage"))
    assert scene.refused == []
    assert scene.ask(used=9) == ""
    scene.scheduler.advance(PAUSE_MS)
    await turns()
    assert scene.sent[1:] == [{A: UsedEpoch(4, 9)}]


async def test_an_error_of_the_listener_is_logged_and_holds_up_no_other_question(
    scene: Scene,
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[ReplicaId] = []

    def listener(replica: ReplicaId) -> None:
        heard.append(replica)
        if replica == A:
            raise ValueError("a bug in the listener")

    scene.requests.on_refused = listener
    for replica in (A, B, C):
        scene.ask(replica)
    await turns()
    late = ReplicaId(b"t" * 16, 7)
    scene.ask(late)
    damage = InvalidRequestError("that is damage")
    await scene.answer(a=damage, b=damage)
    assert heard == [A, B]
    assert "that is damage" in scene.ask(A)
    assert scene.ask(C) == "", "that one was raised"
    scene.scheduler.advance(COLLECT_MS)
    await turns()
    assert scene.sent[1:] == [{late: UsedEpoch(4, 9)}]
    (logged,) = [each for each in caplog.records if each.exc_info]
    assert "a bug in the listener" in str(logged.exc_info)


async def test_a_leader_that_is_none_any_more_waits_for_the_image(scene: Scene) -> None:
    scene.ask()
    await turns()
    await scene.answer(a=FencedLeaderEpochError("another one leads"))
    assert scene.refused == []
    assert scene.ask() == ""


async def test_epochs_that_are_given_in_vain_end_and_the_reason_is_told(scene: Scene) -> None:
    for number in range(RAISES_MAX):
        assert scene.ask(leader_epoch=10 * number, used=10 * number + 9) == ""
        scene.scheduler.advance(PAUSE_MAX_MS)
        await turns()
        await scene.answer()
    assert "another broker writes" in scene.ask(leader_epoch=500, used=600)
    scene.scheduler.advance(PAUSE_MAX_MS)
    await turns()
    assert len(scene.sent) == RAISES_MAX


async def test_after_the_stop_nothing_is_asked(scene: Scene) -> None:
    scene.ask()
    await turns()
    await scene.answer(DecisionTimedOut("not in time"))
    scene.requests.stop()
    scene.scheduler.advance(PAUSE_MAX_MS)
    await turns()
    assert len(scene.sent) == 1
