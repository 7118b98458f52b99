"""What a follower makes of an answer, and when it asks again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replication.fetch_session import Asked
from broker.replication.fetch_wire import PartitionAnswer
from broker.replication.following import (
    FAILED_WAIT_MS,
    FAILING_MS,
    FAULTS_MAX,
    FIRST_WAIT_MS,
    Append,
    Begin,
    Build,
    Decision,
    FindLocalStart,
    FindRange,
    Following,
    LeaderRange,
    LocalStart,
    Standing,
    Stop,
    Truncate,
    Wait,
    after_local_start,
    after_range,
    base_below,
    decided,
    is_current,
)
from kafka_protocol.errors import ErrorCode
from local_log.leader_epoch_cache import EpochEnd
from tests.support.worlds.local_log import batch_of

LATE, WRONG = Wait("late"), Wait("wrong", is_fault=True)


def answer(
    error: int = 0, *, diverging: EpochEnd | None = None, records: bytes = b"", log_start: int = 2
) -> PartitionAnswer:
    return PartitionAnswer((b"t" * 16, 0), error, 9, log_start, diverging, memoryview(records))


@pytest.mark.parametrize(
    ("given_answer", "decision"),
    [
        (answer(records=b"x"), Append(answer(records=b"x"))),
        (answer(), Append(answer())),
        (answer(diverging=EpochEnd(3, 7)), Truncate(EpochEnd(3, 7), 2)),
        (answer(diverging=EpochEnd(3, 7), log_start=-1), Truncate(EpochEnd(3, 7), 0)),
        (answer(ErrorCode.OFFSET_OUT_OF_RANGE), FindRange()),
        (answer(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE), FindLocalStart()),
        (
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            Wait("the leader answers NOT_LEADER_OR_FOLLOWER"),
        ),
        (answer(ErrorCode.UNKNOWN_TOPIC_ID), Wait("the leader answers UNKNOWN_TOPIC_ID")),
        (answer(-1, diverging=EpochEnd(3, 7)), Wait("the leader answers UNKNOWN_SERVER_ERROR")),
        (answer(31_000), Wait("the leader answers UNKNOWN_SERVER_ERROR")),
    ],
)
def test_an_answer_is_good_for_one_thing(given_answer: PartitionAnswer, decision: Decision) -> None:
    assert decided(given_answer) == decision


def test_a_fenced_leader_epoch_waits_for_the_metadata() -> None:
    assert isinstance(decided(answer(ErrorCode.FENCED_LEADER_EPOCH)), Stop)


@pytest.mark.parametrize(
    ("theirs", "end", "decision"),
    [
        (LocalStart(50, 4, 10), 20, Build(LocalStart(50, 4, 10))),
        (LocalStart(50, 4, 10), 0, Build(LocalStart(50, 4, 10))),
        (LocalStart(50, 4, 49), 20, Build(LocalStart(50, 4, 49))),
        (LocalStart(50, 4, 50), 20, Begin(50)),
        (LocalStart(50, 4, 10), 50, Wait("the leader's local log begins at 50 by now")),
        (LocalStart(40, 4, 10), 50, Wait("the leader's local log begins at 40 by now")),
    ],
)
def test_a_follower_below_the_leaders_local_log_begins_there(
    theirs: LocalStart, end: int, decision: Begin | Build | Wait
) -> None:
    assert after_local_start(theirs, log_end=end) == decision


@pytest.mark.parametrize(
    ("theirs", "start", "end", "decision"),
    [
        (LeaderRange(10, 20, 4), 0, 9, Begin(10)),
        (LeaderRange(10, 20, 4), 0, 10, Truncate(EpochEnd(4, 20), 10)),
        (LeaderRange(10, 20, 4), 0, 25, Truncate(EpochEnd(4, 20), 10)),
        (LeaderRange(0, 0, 4), 0, 25, Truncate(EpochEnd(4, 0), 0)),
        (LeaderRange(0, 5, 4), 7, 25, Truncate(EpochEnd(4, 5), 0)),
        (LeaderRange(0, 5, 4), 7, 7, Begin(0)),
        (LeaderRange(0, 7, 4), 7, 7, Begin(0)),
        (LeaderRange(9, 12, 4), 7, 7, Begin(9)),
    ],
)
def test_only_a_log_below_the_leaders_or_an_empty_one_begins_anew(
    theirs: LeaderRange, start: int, end: int, decision: Decision
) -> None:
    assert after_range(theirs, log_start=start, log_end=end) == decision


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_records_within_or_above_the_leaders_range_are_never_dropped_whole(
    start: int, more: int, their_start: int, their_more: int
) -> None:
    theirs, end = LeaderRange(their_start, their_start + their_more, 1), start + more
    decision = after_range(theirs, log_start=start, log_end=end)
    if isinstance(decision, Begin):
        assert end < their_start or more == 0
        assert decision.offset == their_start


@pytest.mark.parametrize(
    ("asked", "base"), [(3, None), (4, 3), (5, 3), (6, None), (9, None), (2, None)]
)
def test_a_log_begins_below_only_by_a_batch_across_the_asked_offset(
    asked: int, base: int | None
) -> None:
    """A leader that sends what is wholly below is wrong, and is not followed there."""
    batches = bytes(batch_of(3, base_offset=3)) + bytes(batch_of(4, base_offset=6))
    assert base_below(memoryview(batches), asked) == base
    assert base_below(memoryview(batches)[:60], asked) is None


def test_an_answer_counts_for_its_leadership_and_offset_only() -> None:
    asked = Asked(5, 100, 4, 0, 90)
    assert is_current(asked, leader_epoch=5, log_end=100)
    assert not is_current(asked, leader_epoch=6, log_end=100)
    assert not is_current(asked, leader_epoch=5, log_end=99)


def waits(following: Following, wait: Wait, times: int, *, now_ms: int = 0) -> list[int]:
    """The pauses."""
    found = []
    for _ in range(times):
        following.wait(wait, now_ms=now_ms, backoff_ms=1_000)
        found.append(following.due_ms - now_ms)
    return found


def test_pauses_grow_up_to_the_setting() -> None:
    pauses = waits(Following(1), LATE, 40)
    assert pauses[:3] == [FIRST_WAIT_MS, 2 * FIRST_WAIT_MS, 4 * FIRST_WAIT_MS]
    assert pauses == sorted(pauses)
    assert set(pauses[7:]) == {1_000}


def test_a_good_answer_ends_the_count() -> None:
    following = Following(1)
    waits(following, LATE, 5)
    assert not following.went_well()
    assert waits(following, LATE, 1) == [FIRST_WAIT_MS]


def test_wrong_answers_in_a_row_count_as_failed_and_are_tried_rarely() -> None:
    following = Following(1)
    assert waits(following, WRONG, FAULTS_MAX - 1) == [1_000] * (FAULTS_MAX - 1)
    assert not following.is_failed
    assert waits(following, WRONG, 2) == [FAILED_WAIT_MS] * 2
    assert following.is_failed
    assert following.went_well()
    assert not following.is_failed


def test_one_late_answer_between_wrong_ones_ends_their_row() -> None:
    following = Following(1)
    waits(following, WRONG, FAULTS_MAX - 1)
    waits(following, LATE, 1)
    waits(following, WRONG, FAULTS_MAX - 1)
    assert not following.is_failed


def test_a_minute_without_a_good_answer_counts_as_failed() -> None:
    following = Following(1)
    waits(following, LATE, 1)
    waits(following, LATE, 1, now_ms=FAILING_MS - 1)
    assert not following.is_failed
    waits(following, LATE, 1, now_ms=FAILING_MS)
    assert following.is_failed


def test_a_line_is_worth_it_at_the_first_fault_and_at_the_failure() -> None:
    following = Following(1)
    said = [following.wait(WRONG, now_ms=0, backoff_ms=1) for _ in range(5)]
    assert said == [True, False, True, False, False]
    assert not Following(1).wait(LATE, now_ms=0, backoff_ms=1)


def test_only_the_newest_pause_of_a_waiting_partition_ends_it() -> None:
    following = Following(1)
    waits(following, LATE, 2)
    assert not following.is_due(FIRST_WAIT_MS)
    assert following.is_due(2 * FIRST_WAIT_MS)
    assert following.standing is Standing.ASKED
    assert not following.is_due(2 * FIRST_WAIT_MS)


def test_a_stopped_partition_is_due_never() -> None:
    following = Following(1)
    waits(following, LATE, 1)
    following.stop(Stop("over", is_failure=True))
    assert not following.is_due(FIRST_WAIT_MS)
    assert following.is_failed
