"""A follower's side of a Fetch session, and the leader's cache as the other side."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replica.fetch_session import FetchSessionCache
from broker.replica.fetch_types import FetchPartition
from broker.replication.fetch_session import Asked, FetchSession, PartitionId, Question
from kafka_protocol.errors import ApiError, ErrorCode
from runtime.work import at_once
from tests.support.sim.rng import SeededRng

A, B = (b"a" * 16, 0), (b"b" * 16, 3)


def asked(offset: int = 0, *, leader_epoch: int = 1) -> Asked:
    return Asked(leader_epoch, offset, -1, 0, 0)


class Leader:
    """A leader's cache of sessions, by the names of the protocol.

    Attributes:
        error: of its last answer.
    """

    def __init__(self, slots: int = 2) -> None:
        self.cache = FetchSessionCache(slots_max=slots, rng=SeededRng(3))
        self.error = 0

    def serve(self, question: Question) -> tuple[int, int, list[PartitionId]]:
        """Error, session id, partitions in the answer."""
        partitions = [
            FetchPartition(
                key, "", key[0], key[1], one.offset, 1, one.leader_epoch, one.last_fetched_epoch
            )
            for key, one in question.asked.items()
        ]
        try:
            context = at_once(
                self.cache.begin(
                    session_id=question.session_id,
                    session_epoch=question.epoch,
                    asked=partitions,
                    forgotten=question.forgotten,
                    with_ids=True,
                    now_ms=0,
                )
            )
        except ApiError as error:
            return int(error.code), 0, []
        held = context.all_partitions()
        context.end()
        return 0, context.session_id, [one.key for one in held]  # type: ignore[misc]

    def held(self, session: FetchSession) -> dict[PartitionId, tuple[int, int]]:
        """Offset and leader epoch of what it believes to be asked."""
        found = self.cache._sessions[session._session_id].partitions
        return {key: (one.offset, one.current_leader_epoch) for key, one in found.items()}  # type: ignore[misc]


def ask_of(leader: Leader, session: FetchSession) -> Question | None:
    question = session.question()
    if question is not None:
        error, session_id, _ = leader.serve(question)
        session.answered(error, session_id)
    return question


def test_nothing_wanted_asks_nothing() -> None:
    assert FetchSession().question() is None


def test_the_first_question_is_full_and_later_ones_tell_changes() -> None:
    leader, session = Leader(), FetchSession()
    session.ask(A, asked())
    session.ask(B, asked(7))
    first = ask_of(leader, session)
    assert first is not None
    assert first.is_full
    assert first.asked == {A: asked(), B: asked(7)}
    session.ask(A, asked(5))
    session.ask(B, asked(7))
    second = ask_of(leader, session)
    assert second is not None
    assert (second.epoch, second.asked, second.forgotten) == (1, {A: asked(5)}, ())
    third = ask_of(leader, session)
    assert third is not None
    assert (third.epoch, third.asked) == (2, {})


def test_the_last_partition_is_forgotten_and_then_nothing_is_asked() -> None:
    leader, session = Leader(), FetchSession()
    session.ask(A, asked())
    ask_of(leader, session)
    session.forget(A)
    last = ask_of(leader, session)
    assert last is not None
    assert last.forgotten == (A,)
    assert session.question() is None
    assert len(leader.cache) == 0
    session.ask(A, asked(9))
    again = session.question()
    assert again is not None
    assert again.is_full
    assert again.session_id == 0


def test_another_leadership_is_forgotten_and_asked_anew() -> None:
    """Else the leader would not tell again what it told under the one before."""
    leader, session = Leader(), FetchSession()
    session.ask(A, asked())
    session.ask(B, asked())
    ask_of(leader, session)
    session.ask(A, asked(leader_epoch=2))
    forgets, asks = ask_of(leader, session), ask_of(leader, session)
    assert forgets is not None
    assert asks is not None
    assert (forgets.forgotten, forgets.asked, forgets.is_hurried) == ((A,), {}, True)
    assert (asks.forgotten, asks.is_hurried) == ((), True)
    assert asks.asked == {A: asked(leader_epoch=2)}


def hurries(leader: Leader, session: FetchSession) -> bool:
    question = ask_of(leader, session)
    return question is not None and question.is_hurried


@pytest.mark.parametrize("slots", [0, 2])
def test_only_a_question_with_new_partitions_is_hurried(slots: int) -> None:
    """Without a slot for the session, too: else the leader would be asked all the time."""
    leader, session = Leader(slots), FetchSession()
    session.ask(A, asked())
    assert [hurries(leader, session) for _ in range(3)] == [True, False, False]
    session.ask(A, asked(5))
    assert not hurries(leader, session)
    session.ask(B, asked())
    assert [hurries(leader, session) for _ in range(2)] == [True, False]


def test_a_lost_session_id_is_not_sent_again() -> None:
    session = FetchSession()
    session.ask(A, asked())
    session.question()
    assert session.answered(0, 77)
    session.question()
    assert not session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    question = session.question()
    assert question is not None
    assert (question.session_id, question.epoch) == (0, 0)


def test_a_wrong_session_epoch_ends_the_session_and_begins_another() -> None:
    session = FetchSession()
    session.ask(A, asked())
    session.question()
    session.answered(0, 77)
    session.question()
    assert not session.answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    question = session.question()
    assert question is not None
    assert (question.session_id, question.epoch) == (77, 0)


def test_an_answer_of_another_session_does_not_count() -> None:
    session = FetchSession()
    session.ask(A, asked())
    session.question()
    session.answered(0, 77)
    session.question()
    assert not session.answered(0, 78)
    question = session.question()
    assert question is not None
    assert question.is_full


def test_without_a_slot_each_question_is_full() -> None:
    leader, session = Leader(slots=0), FetchSession()
    session.ask(A, asked())
    for _ in range(2):
        question = ask_of(leader, session)
        assert question is not None
        assert question.is_full
        assert question.asked == {A: asked()}


KEYS = st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(0, 2))
CHANGES = st.one_of(
    st.tuples(st.just("ask"), KEYS, st.integers(0, 3), st.integers(1, 2)),
    st.tuples(st.just("forget"), KEYS),
    st.tuples(st.just("renew"), KEYS),
    st.tuples(st.sampled_from(["fetch", "question lost", "answer lost", "restart"])),
)


@given(st.lists(CHANGES, max_size=40), st.sampled_from([0, 1, 50]))
def test_the_leader_believes_what_is_wanted_whatever_got_lost(
    changes: list[Any], slots: int
) -> None:
    leader, session = Leader(slots), FetchSession()
    wanted: dict[PartitionId, Asked] = {}
    for what, *rest in changes:
        match what:
            case "ask":
                key, offset, epoch = rest
                wanted[key] = asked(offset, leader_epoch=epoch)
                session.ask(key, wanted[key])
            case "forget":
                wanted.pop(rest[0], None)
                session.forget(rest[0])
            case "renew":
                session.renew(rest[0])
            case "restart":
                leader = Leader(slots)
            case _:
                question = session.question()
                if question is None:
                    continue
                if what == "question lost":
                    session.lost()
                    continue
                error, session_id, held = leader.serve(question)
                if what == "answer lost":
                    session.lost()
                elif session.answered(error, session_id):
                    assert set(held) == set(session.last_sent) or not session.last_sent
    for _ in range(4):  # lost session, full question, forgetting, asking
        ask_of(leader, session)
    assert session.last_sent == wanted
    # A session whose answer was lost keeps its slot for two minutes.
    assert session._session_id or slots < 50 or not wanted
    if session._session_id and wanted:  # nothing is asked for nothing: the leader keeps what it has
        assert leader.held(session) == {
            key: (one.offset, one.leader_epoch) for key, one in wanted.items()
        }
