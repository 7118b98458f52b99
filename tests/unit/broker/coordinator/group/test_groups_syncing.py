"""SyncGroup: assignments, and members that are not entitled to one."""

from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from tests.support.coordinator.world import World

E = ErrorCode


def joined(world: World, members: int = 2, **asked: Any) -> list[str]:
    """Members of a generation that waits for its assignment, the leader first."""
    tickets = [world.join(**asked) for _ in range(members)]
    world.advance(0)
    leader = world.answers[tickets[0]].leader
    ids = [world.answers[each].member_id for each in tickets]
    return sorted(ids, key=lambda each: each != leader)


def test_followers_wait_for_the_leader_and_each_gets_its_part() -> None:
    world = World()
    leader, follower = joined(world)
    waits = world.sync("g", follower, 1)
    assert waits not in world.answers
    done = world.sync("g", leader, 1, {leader: b"one", follower: b"two"})
    assert world.answers[done].assignment == b"one"
    assert world.answers[waits].assignment == b"two"
    assert world.describe().group_state == "Stable"


def test_follower_that_comes_after_the_leader_is_answered_at_once() -> None:
    world = World()
    leader, follower = joined(world)
    world.sync("g", leader, 1, {leader: b"one", follower: b"two"})
    assert world.answers[world.sync("g", follower, 1)].assignment == b"two"


def test_assignments_count_only_once_their_record_is_committed() -> None:
    world = World()
    leader, follower = joined(world)
    world.holds_commits = True
    first = world.sync("g", leader, 1, {leader: b"one", follower: b"two"})
    second = world.sync("g", follower, 1)
    assert not {first, second} & set(world.answers)
    assert world.describe().group_state == "CompletingRebalance"
    world.commit()
    assert world.answers[second].assignment == b"two"
    assert world.describe().group_state == "Stable"


def test_leader_that_syncs_twice_is_given_its_first_assignment() -> None:
    world = World()
    leader, _ = joined(world)
    world.holds_commits = True
    earlier = world.sync("g", leader, 1, {leader: b"one"})
    later = world.sync("g", leader, 1, {leader: b"two"})
    world.commit()
    assert world.answers[earlier].error_code == E.REBALANCE_IN_PROGRESS
    assert world.answers[later].assignment == b"one"
    assert world.restarted().describe() == world.describe()


def test_member_that_joins_while_the_assignment_is_written_makes_it_void() -> None:
    world = World()
    leader, follower = joined(world)
    world.holds_commits = True
    first = world.sync("g", leader, 1, {leader: b"one", follower: b"two"})
    world.join()
    assert world.answers[first].error_code == E.REBALANCE_IN_PROGRESS
    world.commit()
    assert world.describe().group_state == "PreparingRebalance"
    assert world.heartbeat("g", leader, 1) == E.REBALANCE_IN_PROGRESS


def test_assignment_written_late_does_not_count_in_a_later_generation() -> None:
    world = World()
    leader, follower = joined(world)
    world.holds_commits = True
    world.sync("g", leader, 1, {leader: b"old", follower: b"old"})
    for member_id in ("", leader, follower):
        world.join("g", member_id)
    waits = world.sync("g", follower, 2)
    world.commit()
    assert waits not in world.answers
    assert world.describe().group_state == "CompletingRebalance"
    world.sync("g", leader, 2, {follower: b"new"})
    assert world.answers[waits].assignment == b"new"


def test_member_that_is_given_nothing_loses_what_it_had() -> None:
    world = World()
    leader, follower = world.stable()
    again = [world.join("g", each, protocols=[("range", b"new")]) for each in (leader, follower)]
    assert [world.answers[each].generation_id for each in again] == [2, 2]
    waits = world.sync("g", follower, 2)
    world.sync("g", leader, 2, {leader: b"all"})
    assert world.answers[waits].assignment == b""
    assert world.restarted().describe() == world.describe()


def test_assignments_for_strangers_are_ignored() -> None:
    world = World()
    leader, follower = joined(world)
    done = world.sync("g", leader, 1, {leader: b"one", "stranger": b"all"})
    assert world.answers[done].assignment == b"one"
    assert world.answers[world.sync("g", follower, 1)].assignment == b""
    restarted = world.restarted()
    assert {each.member_id for each in restarted.describe().members} == {leader, follower}


def test_assignments_of_a_follower_are_ignored() -> None:
    world = World()
    leader, follower = joined(world)
    waits = world.sync("g", follower, 1, {follower: b"all"})
    world.sync("g", leader, 1, {leader: b"one"})
    assert world.answers[waits].assignment == b""


def test_second_sync_of_a_member_answers_the_one_that_waits() -> None:
    world = World()
    leader, follower = joined(world)
    earlier = world.sync("g", follower, 1)
    later = world.sync("g", follower, 1)
    assert world.answers[earlier].error_code == E.REBALANCE_IN_PROGRESS
    world.sync("g", leader, 1, {follower: b"two"})
    assert world.answers[later].assignment == b"two"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group": "other"}, E.UNKNOWN_MEMBER_ID),
        ({"group": ""}, E.INVALID_GROUP_ID),
        ({"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, E.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, E.ILLEGAL_GENERATION),
        ({"generation": 2}, E.ILLEGAL_GENERATION),
        ({"instance_id": "i"}, E.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": None}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
    ids=str,
)
def test_sync_is_refused(change: dict[str, Any], error: ErrorCode) -> None:
    world = World()
    leader, follower = joined(world)
    asked: dict[str, Any] = {"group": "g", "member_id": leader, "generation": 1} | change
    assert world.answers[world.sync(**asked)].error_code == error
    # The others are served.
    world.sync("g", leader, 1, {follower: b"two"})
    assert world.answers[world.sync("g", follower, 1)].assignment == b"two"


def test_before_version_5_the_protocol_need_not_be_named() -> None:
    world = World()
    leader, _ = joined(world)
    done = world.sync(
        "g", leader, 1, {leader: b"one"}, protocol_type=None, protocol_name=None, version=4
    )
    assert world.answers[done].assignment == b"one"


def test_sync_while_members_join_is_told_so() -> None:
    world = World()
    leader, _ = world.stable()
    world.join()
    assert world.answers[world.sync("g", leader, 1)].error_code == E.REBALANCE_IN_PROGRESS


def test_sync_in_a_stable_group_repeats_the_assignment() -> None:
    world = World()
    leader, _ = world.stable()
    again = world.answers[world.sync("g", leader, 1, {leader: b"another"})]
    assert again.assignment == leader.encode()


def test_member_that_leaves_while_it_waits_for_its_assignment_is_answered() -> None:
    world = World()
    leader, follower = joined(world)
    waits = world.sync("g", follower, 1)
    world.leave("g", (follower, None))
    assert world.answers[waits].error_code == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", leader, 1) == E.REBALANCE_IN_PROGRESS
