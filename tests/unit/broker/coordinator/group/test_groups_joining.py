"""JoinGroup: who gets in, with which id, and when the answer comes."""

import pytest

from broker.coordinator.group.decision_builder import GroupLimits
from kafka_protocol.errors import ErrorCode
from tests.support.coordinator.world import World

E = ErrorCode


def test_first_member_leads_generation_one_and_is_told_all_members() -> None:
    world = World()
    ticket = world.join(protocols=[("range", b"mine")])
    world.advance(0)
    answer = world.answers[ticket]
    assert (answer.error_code, answer.generation_id) == (E.NONE, 1)
    assert answer.leader == answer.member_id
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [(each.member_id, each.metadata) for each in answer.members] == [
        (answer.member_id, b"mine")
    ]


def test_followers_are_told_the_leader_and_no_members() -> None:
    world = World()
    leader, follower = world.join(), world.join()
    world.advance(0)
    assert world.answers[follower].leader == world.answers[leader].member_id
    assert world.answers[follower].members == []
    assert len(world.answers[leader].members) == 2


# KIP-394: an id first.


def test_from_version_4_a_new_member_gets_an_id_and_must_join_with_it() -> None:
    world = World()
    asked = world.join(version=4, client_id="kcat")
    given = world.answers[asked]
    assert given.error_code == E.MEMBER_ID_REQUIRED
    assert given.member_id.startswith("kcat-")
    joined = world.join("g", given.member_id, version=4)
    world.advance(0)
    assert world.answers[joined].member_id == given.member_id
    assert world.answers[joined].error_code == E.NONE


def test_below_version_4_a_new_member_joins_at_once() -> None:
    world = World()
    ticket = world.join(version=3)
    world.advance(0)
    assert world.answers[ticket].error_code == E.NONE


def test_static_member_needs_no_id_and_is_named_after_its_instance() -> None:
    world = World()
    ticket = world.join(instance_id="rack-1", version=9)
    world.advance(0)
    assert world.answers[ticket].error_code == E.NONE
    assert world.answers[ticket].member_id.startswith("rack-1-")


def test_an_unused_member_id_is_forgotten_after_the_session_timeout() -> None:
    world = World()
    given = world.answers[world.join(version=4, session_timeout_ms=10_000)].member_id
    world.advance(10_000)
    late = world.join("g", given, version=4)
    assert world.answers[late].error_code == E.UNKNOWN_MEMBER_ID


def test_an_unused_member_id_delays_the_join_phase_until_it_is_forgotten() -> None:
    world = World()
    [member] = world.stable(members=1)
    world.join(version=4, session_timeout_ms=6_000)
    again = world.join("g", member)
    assert again not in world.answers
    world.advance(6_000)
    assert world.answers[again].error_code == E.NONE


def test_pending_id_with_an_instance_id_is_an_error_as_in_kafka() -> None:
    world = World()
    given = world.answers[world.join(version=5)].member_id
    ticket = world.join("g", given, instance_id="i", version=5)
    assert world.answers[ticket].error_code == E.UNKNOWN_SERVER_ERROR


# What is refused.


@pytest.mark.parametrize("timeout_ms", [-1, 0, 5_999, 1_800_001])
def test_session_timeout_outside_of_the_limits_is_refused(timeout_ms: int) -> None:
    world = World()
    ticket = world.join(session_timeout_ms=timeout_ms)
    assert world.answers[ticket].error_code == E.INVALID_SESSION_TIMEOUT
    assert world.describe().error_code == E.GROUP_ID_NOT_FOUND


def test_empty_group_id_is_refused() -> None:
    world = World()
    assert world.answers[world.join("")].error_code == E.INVALID_GROUP_ID


def test_member_id_that_nobody_gave_out_is_unknown() -> None:
    world = World()
    without_a_group = world.join("g", "made-up")
    world.stable()
    for ticket in (without_a_group, world.join("g", "made-up")):
        assert world.answers[ticket].error_code == E.UNKNOWN_MEMBER_ID
        assert world.answers[ticket].member_id == "made-up"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", [("range", b"")]), ("consumer", []), ("", [])],
    ids=["no-type", "no-protocol", "neither"],
)
def test_join_without_protocols_is_inconsistent(protocol_type: str, protocols: list) -> None:  # type: ignore[type-arg]
    world = World()
    ticket = world.join(protocol_type=protocol_type, protocols=protocols)
    assert world.answers[ticket].error_code == E.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("protocol_type", "protocol"),
    [("connect", "range"), ("consumer", "sticky")],
    ids=["other-type", "no-common-name"],
)
def test_foreign_protocol_does_not_get_in_and_the_others_keep_their_places(
    protocol_type: str, protocol: str
) -> None:
    world = World()
    ids = world.stable()
    ticket = world.join(protocol_type=protocol_type, protocols=[(protocol, b"")])
    assert world.answers[ticket].error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.describe().group_state == "Stable"
    assert world.heartbeat("g", ids[0], 1) == E.NONE


def test_group_that_became_empty_takes_another_protocol() -> None:
    world = World()
    [member] = world.stable(members=1)
    world.leave("g", (member, None))
    ticket = world.join(protocol_type="connect", protocols=[("eager", b"")])
    world.advance(0)
    assert world.answers[ticket].protocol_type == "connect"
    assert world.answers[ticket].generation_id == 3


def test_name_too_long_for_a_member_id_is_refused_and_harms_nobody() -> None:
    world = World()
    ids = world.stable()
    long = "x" * 32_767
    for ticket in (
        world.join(version=9, client_id=long),
        world.join(version=9, instance_id=long),
    ):
        assert world.answers[ticket].error_code == E.UNKNOWN_SERVER_ERROR
    assert world.heartbeat("g", ids[0], 1) == E.NONE


# The vote.


def test_protocol_with_most_votes_wins_among_those_that_all_support() -> None:
    world = World()
    a, b = ("a", b""), ("b", b"")
    tickets = [world.join(protocols=each) for each in ([a, b], [b, a], [b, a, ("c", b"")])]
    world.advance(0)
    assert {world.answers[each].protocol_name for each in tickets} == {"b"}


def test_protocol_that_a_member_names_twice_counts_once() -> None:
    world = World()
    first = world.join(protocols=[("range", b"1"), ("range", b"2")])
    second = world.join(protocols=[("range", b"3")])
    world.advance(0)
    assert world.answers[first].protocol_name == "range"
    assert world.answers[second].error_code == E.NONE


# Joining again.


def test_unchanged_follower_that_rejoins_a_stable_group_changes_nothing() -> None:
    world = World()
    _, follower = world.stable()
    answer = world.answers[world.join("g", follower)]
    assert (answer.error_code, answer.generation_id, answer.members) == (E.NONE, 1, [])
    assert world.describe().group_state == "Stable"


def test_leader_that_joins_again_starts_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable()
    again = world.join("g", leader)
    assert again not in world.answers
    assert world.heartbeat("g", follower, 1) == E.REBALANCE_IN_PROGRESS
    world.join("g", follower)
    assert world.answers[again].generation_id == 2


def test_follower_with_other_metadata_starts_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable()
    world.join("g", follower, protocols=[("range", b"other")])
    assert world.heartbeat("g", leader, 1) == E.REBALANCE_IN_PROGRESS


def test_join_repeated_during_the_sync_is_answered_from_the_generation() -> None:
    world = World()
    tickets = [world.join(), world.join()]
    world.advance(0)
    leader = world.answers[tickets[0]]
    again = world.answers[world.join("g", leader.member_id)]
    assert (again.generation_id, len(again.members)) == (1, 2)
    assert world.describe().group_state == "CompletingRebalance"


def test_other_metadata_while_members_sync_starts_the_next_rebalance() -> None:
    world = World()
    first, second = world.join(), world.join()
    world.advance(0)
    waits = world.sync("g", world.answers[second].member_id, 1)
    world.join("g", world.answers[first].member_id, protocols=[("range", b"new")])
    assert world.answers[waits].error_code == E.REBALANCE_IN_PROGRESS
    assert world.describe().group_state == "PreparingRebalance"


def test_second_join_of_a_parked_member_ends_the_first() -> None:
    world = World()
    leader, _ = world.stable()
    earlier = world.join("g", leader)
    later = world.join("g", leader)
    assert world.answers[earlier].error_code == E.REBALANCE_IN_PROGRESS
    assert later not in world.answers


def test_version_0_has_its_session_timeout_for_rebalances_as_well() -> None:
    world = World()
    world.stable(members=2, version=0, session_timeout_ms=7_000, rebalance_timeout_ms=-1)
    restarted = world.restarted()
    restarted.join()
    restarted.advance(7_000)
    assert restarted.describe().group_state == "CompletingRebalance"


# group.max.size


def test_one_member_too_many_is_refused_and_the_others_keep_their_places() -> None:
    world = World(GroupLimits(initial_rebalance_delay_ms=0, group_size_max=2))
    ids = world.stable(members=2)
    ticket = world.join()
    assert world.answers[ticket].error_code == E.GROUP_MAX_SIZE_REACHED
    assert world.answers[ticket].member_id == ""
    assert [world.heartbeat("g", each, 1) for each in ids] == [E.NONE, E.NONE]


def test_while_members_join_those_that_joined_count() -> None:
    world = World(GroupLimits(initial_rebalance_delay_ms=0, group_size_max=2))
    leader, follower = world.stable(members=2)
    first = world.join("g", leader)
    newcomer = world.join()
    late = world.join("g", follower)
    assert world.answers[late].error_code == E.GROUP_MAX_SIZE_REACHED
    # Nobody is left to wait for.
    assert world.answers[first].generation_id == 2
    assert world.answers[newcomer].generation_id == 2
    assert world.heartbeat("g", follower, 2) == E.UNKNOWN_MEMBER_ID


def test_group_that_is_loaded_above_its_limit_rebalances_down_to_it() -> None:
    world = World()
    ids = world.stable(members=3)
    world.limits = GroupLimits(initial_rebalance_delay_ms=0, group_size_max=2)
    smaller = world.restarted()
    assert smaller.describe().group_state == "PreparingRebalance"
    tickets = [smaller.join("g", each) for each in ids]
    errors = [smaller.answers[each].error_code for each in tickets]
    assert errors == [E.NONE, E.NONE, E.GROUP_MAX_SIZE_REACHED]
