"""Heartbeats, sessions and LeaveGroup: who is still there."""

from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from tests.support.coordinator.world import World

E = ErrorCode


# Heartbeats.


@pytest.mark.parametrize(
    ("group", "member_id", "generation", "error"),
    [
        ("g", None, 1, E.NONE),
        ("g", None, 0, E.ILLEGAL_GENERATION),
        ("g", None, 2, E.ILLEGAL_GENERATION),
        ("g", "stranger", 1, E.UNKNOWN_MEMBER_ID),
        ("g", "", 1, E.UNKNOWN_MEMBER_ID),
        ("other", None, 1, E.UNKNOWN_MEMBER_ID),
        ("", None, 1, E.INVALID_GROUP_ID),
    ],
)
def test_heartbeat_is_answered(
    group: str, member_id: str | None, generation: int, error: ErrorCode
) -> None:
    world = World()
    [leader] = world.stable(members=1)
    asked = leader if member_id is None else member_id
    assert world.heartbeat(group, asked, generation) == error


def test_heartbeat_while_members_sync_is_fine() -> None:
    world = World()
    ticket = world.join()
    world.advance(0)
    assert world.heartbeat("g", world.answers[ticket].member_id, 1) == E.NONE


def test_heartbeats_set_no_timers() -> None:
    world = World()
    [leader] = world.stable(members=1)
    before = dict(world.timers)
    for _ in range(20):
        world.advance(100)
        world.heartbeat("g", leader, 1)
    assert world.timers == before


def test_member_that_is_heard_of_stays() -> None:
    world = World()
    [leader] = world.stable(members=1, session_timeout_ms=10_000)
    for _ in range(5):
        world.advance(9_999)
        assert world.heartbeat("g", leader, 1) == E.NONE


def test_silent_member_is_removed_when_its_session_ends() -> None:
    world = World()
    leader, silent = world.stable(session_timeout_ms=10_000)
    world.advance(9_000)
    world.heartbeat("g", leader, 1)
    world.advance(999)
    assert world.heartbeat("g", silent, 5) == E.ILLEGAL_GENERATION  # it does not count
    world.advance(1)
    assert world.heartbeat("g", silent, 1) == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", leader, 1) == E.REBALANCE_IN_PROGRESS


def test_commits_keep_a_member_alive() -> None:
    world = World()
    [leader] = world.stable(members=1, session_timeout_ms=10_000)
    for offset in range(3):
        world.advance(9_000)
        world.commit_offsets("g", {("t", 0): offset}, member_id=leader, generation=1)
    assert world.heartbeat("g", leader, 1) == E.NONE


def test_commits_keep_a_member_alive_also_while_others_join() -> None:
    world = World()
    leader, _ = world.stable(session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
    world.join(rebalance_timeout_ms=60_000)
    for offset in range(3):
        world.advance(9_000)
        ticket = world.commit_offsets("g", {("t", 0): offset}, member_id=leader, generation=1)
        assert world.commit_errors(ticket) == [E.NONE]
    assert world.heartbeat("g", leader, 1) == E.REBALANCE_IN_PROGRESS


def test_member_with_a_parked_join_is_alive() -> None:
    world = World()
    timeouts: dict[str, Any] = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000}
    leader, follower = world.stable(**timeouts)
    again = world.join("g", leader, **timeouts)
    for _ in range(5):
        world.advance(9_000)
        world.heartbeat("g", follower, 1)
    assert again not in world.answers
    world.join("g", follower, **timeouts)
    assert world.answers[again].generation_id == 2
    assert world.heartbeat("g", leader, 2) == E.NONE
    # From its answer on it must be heard of.
    world.advance(10_000)
    assert world.heartbeat("g", leader, 2) == E.UNKNOWN_MEMBER_ID


def test_member_with_a_parked_sync_is_alive() -> None:
    world = World()
    tickets = [world.join(session_timeout_ms=10_000) for _ in range(2)]
    world.advance(0)
    leader, follower = (world.answers[each].member_id for each in tickets)
    world.sync("g", follower, 1)
    for _ in range(3):
        world.advance(9_000)
        assert world.heartbeat("g", leader, 1) == E.NONE
    world.sync("g", leader, 1, {follower: b"part"})
    assert world.heartbeat("g", follower, 1) == E.NONE


def test_session_of_a_member_whose_sync_was_parked_begins_with_its_answer() -> None:
    world = World()
    tickets = [world.join(session_timeout_ms=10_000) for _ in range(2)]
    world.advance(0)
    leader, follower = (world.answers[each].member_id for each in tickets)
    world.sync("g", follower, 1)
    for _ in range(2):
        world.advance(9_000)
        world.heartbeat("g", leader, 1)
    world.sync("g", leader, 1, {follower: b"part"})
    for _ in range(2):
        world.advance(4_999)
        world.heartbeat("g", leader, 1)
    assert [each.member_id for each in world.describe().members] == [leader, follower]
    world.advance(2)
    assert [each.member_id for each in world.describe().members] == [leader]


def test_first_join_of_a_new_member_does_not_keep_it_for_ever() -> None:
    world = World()
    leader, _ = world.stable(
        session_timeout_ms=1_800_000, rebalance_timeout_ms=1_000_000, members=2
    )
    abandoned = world.join(session_timeout_ms=10_000, rebalance_timeout_ms=10_000)
    world.advance(299_999)
    assert abandoned not in world.answers
    world.advance(1)
    assert world.answers[abandoned].error_code == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", leader, 1) == E.REBALANCE_IN_PROGRESS


def test_clock_that_jumps_ends_no_session() -> None:
    world = World()
    [leader] = world.stable(members=1)
    world.wall_ms += 10**9  # only the monotonic clock counts
    world.advance(5_000)
    assert world.heartbeat("g", leader, 1) == E.NONE


def test_sessions_of_restored_members_begin_with_the_load() -> None:
    world = World()
    leader, follower = world.stable(session_timeout_ms=10_000)
    world.advance(9_000)
    world.heartbeat("g", leader, 1)
    world.heartbeat("g", follower, 1)
    restarted = world.restarted()
    restarted.advance(9_999)
    assert restarted.heartbeat("g", leader, 1) == E.NONE
    restarted.advance(1)
    assert restarted.heartbeat("g", follower, 1) == E.UNKNOWN_MEMBER_ID


def test_last_member_that_falls_silent_leaves_an_empty_group() -> None:
    world = World()
    world.stable(members=1)
    world.advance(10_000)
    assert world.describe().group_state == "Empty"
    assert world.timers == {}


# LeaveGroup.


def test_member_that_leaves_is_gone_at_once_and_the_rest_rebalances() -> None:
    world = World()
    leader, follower = world.stable()
    answer = world.leave("g", (leader, None))
    assert answer.error_code == answer.members[0].error_code == E.NONE
    assert world.heartbeat("g", leader, 1) == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", follower, 1) == E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_the_error_of_the_member_is_that_of_the_answer(version: int) -> None:
    world = World()
    leader, _ = world.stable()
    assert world.leave("g", ("stranger", None), version=version).error_code == E.UNKNOWN_MEMBER_ID
    assert world.leave("none", (leader, None), version=version).error_code == E.UNKNOWN_MEMBER_ID
    answer = world.leave("g", (leader, None), version=version)
    assert (answer.error_code, answer.members) == (E.NONE, [])


def test_batch_of_leaves_is_answered_one_by_one() -> None:
    world = World()
    ids = [world.join(instance_id=each, version=9) for each in "ab"]
    ids.append(world.join(version=3))
    world.advance(0)
    a, _, dynamic = (world.answers[each].member_id for each in ids)
    answer = world.leave(
        "g", ("", "a"), ("", "nobody"), ("", None), (a, "b"), (dynamic, None), (dynamic, None)
    )
    assert [each.error_code for each in answer.members] == [
        E.NONE,
        E.UNKNOWN_MEMBER_ID,
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_INSTANCE_ID,
        E.NONE,
        E.UNKNOWN_MEMBER_ID,
    ]
    assert [each.group_instance_id for each in world.describe().members] == ["b"]


def test_batch_of_which_only_some_can_leave_rebalances_the_rest() -> None:
    world = World()
    leader, follower = world.stable()
    world.leave("g", ("stranger", None), (leader, None))
    assert world.heartbeat("g", follower, 1) == E.REBALANCE_IN_PROGRESS


def test_batch_of_which_nobody_can_leave_changes_nothing() -> None:
    world = World()
    leader, _ = world.stable()
    world.leave("g", ("stranger", None), ("", "nobody"))
    assert world.heartbeat("g", leader, 1) == E.NONE


def test_who_names_neither_member_nor_instance_removes_nobody() -> None:
    world = World()
    ticket = world.join(instance_id="", version=9)  # an odd name, but a name
    world.advance(0)
    assert world.leave("g", ("", None)).members[0].error_code == E.UNKNOWN_MEMBER_ID
    assert [each.member_id for each in world.describe().members] == [
        world.answers[ticket].member_id
    ]


def test_batch_in_a_group_that_is_not_there_is_answered_one_by_one() -> None:
    world = World()
    answer = world.leave("none", ("a", None), ("b", "i"))
    assert answer.error_code == E.NONE
    assert [(each.member_id, each.error_code) for each in answer.members] == [
        ("a", E.UNKNOWN_MEMBER_ID),
        ("b", E.UNKNOWN_MEMBER_ID),
    ]


def test_pending_id_can_leave() -> None:
    world = World()
    given = world.answers[world.join(version=4)].member_id
    assert world.leave("g", (given, None)).members[0].error_code == E.NONE
    assert world.timers == {}
    assert world.answers[world.join("g", given, version=4)].error_code == E.UNKNOWN_MEMBER_ID


def test_parked_join_of_a_member_that_leaves_is_answered() -> None:
    world = World()
    leader, _ = world.stable()
    waits = world.join("g", leader)
    world.leave("g", (leader, None))
    assert world.answers[waits].error_code == E.UNKNOWN_MEMBER_ID
    assert world.answers[waits].member_id == ""


def test_last_missing_member_that_leaves_ends_the_join_phase() -> None:
    world = World()
    leader, follower = world.stable()
    again = world.join("g", leader)
    world.leave("g", (follower, None))
    assert world.answers[again].generation_id == 2


def test_empty_group_id_is_refused() -> None:
    world = World()
    assert world.leave("", ("a", None)).error_code == E.INVALID_GROUP_ID


def test_answers_name_whom_they_speak_of() -> None:
    world = World()
    leader, _ = world.stable()
    answer = world.leave("g", (leader, None))
    assert [(each.member_id, each.group_instance_id) for each in answer.members] == [(leader, None)]
