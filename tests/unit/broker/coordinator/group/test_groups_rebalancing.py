"""Rebalances: how long they wait, whom they leave behind, who leads afterwards."""

from typing import Any

import pytest

from broker.coordinator.group.decision_builder import GroupLimits
from broker.coordinator.group.records import read_group_value
from kafka_protocol.errors import ErrorCode
from tests.support.coordinator.world import World

E = ErrorCode


# KIP-134: the initial delay.


def test_new_group_waits_for_its_initial_delay() -> None:
    world = World(GroupLimits(initial_rebalance_delay_ms=3_000))
    ticket = world.join()
    world.advance(2_999)
    assert ticket not in world.answers
    world.advance(1)
    assert world.answers[ticket].generation_id == 1


def test_each_member_that_comes_extends_the_initial_delay() -> None:
    world = World(GroupLimits(initial_rebalance_delay_ms=3_000))
    first = world.join(rebalance_timeout_ms=60_000)
    world.advance(2_000)
    second = world.join(rebalance_timeout_ms=60_000)
    world.advance(1_000)
    assert first not in world.answers
    world.advance(3_000)
    assert world.answers[first].generation_id == world.answers[second].generation_id == 1


def test_initial_delay_is_never_extended_beyond_the_rebalance_timeout() -> None:
    world = World(GroupLimits(initial_rebalance_delay_ms=3_000))
    first = world.join(rebalance_timeout_ms=7_000)
    for _ in range(6):
        world.advance(1_000)
        world.join(rebalance_timeout_ms=7_000)
    world.advance(999)
    assert first not in world.answers
    world.advance(1)
    assert world.answers[first].generation_id == 1


def test_without_a_delay_the_first_generation_begins_at_once() -> None:
    world = World()
    ticket = world.join()
    world.advance(0)
    assert world.answers[ticket].generation_id == 1


# KIP-62: the rebalance time-out.


def test_rebalance_ends_as_soon_as_all_members_joined() -> None:
    world = World()
    leader, follower = world.stable()
    newcomer = world.join()
    world.join("g", leader)
    assert newcomer not in world.answers
    world.join("g", follower)
    assert world.answers[newcomer].generation_id == 2


def test_dynamic_member_that_does_not_rejoin_is_removed_by_the_timeout() -> None:
    world = World()
    leader, follower = world.stable(session_timeout_ms=60_000, rebalance_timeout_ms=20_000)
    again = world.join("g", leader, session_timeout_ms=60_000, rebalance_timeout_ms=20_000)
    world.advance(19_999)
    assert world.heartbeat("g", follower, 1) == E.REBALANCE_IN_PROGRESS
    world.advance(1)
    assert world.answers[again].generation_id == 2
    assert [each.member_id for each in world.answers[again].members] == [leader]
    assert world.heartbeat("g", follower, 2) == E.UNKNOWN_MEMBER_ID


def test_rebalance_waits_for_the_longest_timeout_of_its_members() -> None:
    world = World()
    leader, _ = world.stable(session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    newcomer = world.join(rebalance_timeout_ms=30_000, session_timeout_ms=60_000)
    world.join("g", leader, session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    world.advance(10_000)
    assert newcomer not in world.answers
    world.advance(20_000)
    assert world.answers[newcomer].generation_id == 2


def test_leader_that_joins_again_stays_leader() -> None:
    world = World()
    leader, follower = world.stable()
    newcomer = world.join()
    world.join("g", follower)
    world.join("g", leader)
    assert world.answers[newcomer].leader == leader


def test_leader_that_is_left_behind_is_followed_by_a_member_that_joined() -> None:
    world = World()
    leader, follower = world.stable(session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    again = world.join("g", follower, protocols=[("range", b"new")], rebalance_timeout_ms=10_000)
    world.advance(10_000)
    assert world.answers[again].leader == follower
    assert world.heartbeat("g", leader, 1) == E.UNKNOWN_MEMBER_ID


def test_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    world = World()
    static = world.join(instance_id="i", session_timeout_ms=50_000, rebalance_timeout_ms=10_000)
    dynamic = world.join(session_timeout_ms=50_000, rebalance_timeout_ms=10_000)
    world.advance(0)
    static_id, dynamic_id = (world.answers[each].member_id for each in (static, dynamic))
    world.sync("g", dynamic_id, 1)
    world.sync("g", static_id, 1, {static_id: b"s", dynamic_id: b"d"})
    again = world.join(
        "g",
        dynamic_id,
        protocols=[("range", b"new")],
        session_timeout_ms=50_000,
        rebalance_timeout_ms=10_000,
    )
    world.advance(10_000)
    answer = world.answers[again]
    assert answer.leader == dynamic_id  # the static one led, but did not join
    assert {each.member_id for each in answer.members} == {static_id, dynamic_id}


def test_only_static_members_and_none_joined_waits_again() -> None:
    world = World()
    first = world.join(instance_id="1", session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    world.advance(0)
    first_id = world.answers[first].member_id
    world.sync("g", first_id, 1, {first_id: b""})
    newcomer = world.join(version=4, session_timeout_ms=60_000)  # an id only
    leaver = world.join("g", first_id, instance_id="1", rebalance_timeout_ms=10_000)
    world.advance(0)
    assert leaver not in world.answers
    given = world.answers[newcomer].member_id
    assert world.leave("g", (given, None)).error_code == E.NONE
    assert world.answers[leaver].generation_id == 2


# After the join phase: members that never sync.


def test_member_that_never_syncs_is_gone_after_the_rebalance_timeout() -> None:
    world = World()
    timeouts: dict[str, Any] = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 10_000}
    tickets = [world.join(**timeouts), world.join(**timeouts)]
    world.advance(0)
    leader, silent = (world.answers[each].member_id for each in tickets)
    synced = world.sync("g", leader, 1, {leader: b"all"})
    assert world.answers[synced].assignment == b"all"
    world.advance(10_000)
    assert world.heartbeat("g", silent, 1) == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat("g", leader, 1) == E.REBALANCE_IN_PROGRESS


def test_leader_that_never_syncs_is_gone_and_those_that_wait_join_again() -> None:
    world = World()
    timeouts: dict[str, Any] = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 10_000}
    tickets = [world.join(**timeouts), world.join(**timeouts)]
    world.advance(0)
    leader, follower = (world.answers[each].member_id for each in tickets)
    waits = world.sync("g", follower, 1)
    world.advance(10_000)
    assert world.answers[waits].error_code == E.REBALANCE_IN_PROGRESS
    again = world.join("g", follower, **timeouts)
    assert world.answers[again].leader == follower
    assert world.heartbeat("g", leader, 2) == E.UNKNOWN_MEMBER_ID


def test_rebalance_while_members_sync_leaves_nobody_with_an_assignment() -> None:
    world = World()
    leader, follower = world.stable()
    for each in (leader, follower):
        world.join("g", each, protocols=[("range", b"new")])
    assert {each.member_assignment for each in world.describe().members} != {b""}
    world.join()  # nobody was given a part of generation 2 yet
    assert {each.member_assignment for each in world.describe().members} == {b""}


def test_once_all_synced_no_timer_of_the_group_is_left() -> None:
    world = World()
    world.stable(members=3)
    assert {key.kind.value for key in world.timers} == {"session"}


@pytest.mark.parametrize("members", [1, 3])
def test_group_without_members_has_no_timers(members: int) -> None:
    world = World()
    ids = world.stable(members=members)
    world.leave("g", *((each, None) for each in ids))
    assert world.describe().group_state == "Empty"
    assert world.timers == {}


def test_group_that_becomes_empty_is_written_with_the_next_generation() -> None:
    world = World()
    [member] = world.stable(members=1)
    world.leave("g", (member, None))
    written = read_group_value(world.log[-1][1].value or b"")
    assert (written.generation, written.members) == (2, [])
    assert (written.protocol, written.leader) == (None, None)
    restarted = world.restarted()
    assert restarted.describe().group_state == "Empty"
    ticket = restarted.join()
    restarted.advance(0)
    assert restarted.answers[ticket].generation_id == 3
