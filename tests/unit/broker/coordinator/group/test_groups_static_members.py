"""Static members (KIP-345, KIP-814): a restart keeps the place, a double is fenced."""

import pytest

from kafka_protocol.errors import ErrorCode
from tests.support.coordinator.world import World

E = ErrorCode


def two_static(world: World) -> tuple[str, str]:
    """A stable group of the instances `a`, which leads, and `b`; their member ids."""
    tickets = [world.join(instance_id=each, version=9) for each in "ab"]
    world.advance(0)
    a, b = (world.answers[each].member_id for each in tickets)
    world.sync("g", b, 1, instance_id="b")
    world.sync("g", a, 1, {a: b"for a", b: b"for b"}, instance_id="a")
    return a, b


def test_restarted_follower_gets_its_place_back_without_a_rebalance() -> None:
    world = World()
    a, old = two_static(world)
    answer = world.answers[world.join(instance_id="b", version=9)]
    assert (answer.error_code, answer.generation_id, answer.leader) == (E.NONE, 1, a)
    assert answer.member_id not in {a, old}
    assert (answer.skip_assignment, answer.members) == (False, [])
    synced = world.sync("g", answer.member_id, 1, instance_id="b")
    assert world.answers[synced].assignment == b"for b"
    assert world.heartbeat("g", a, 1) == E.NONE


def test_restarted_leader_is_told_the_members_and_to_skip_the_assignment() -> None:
    world = World()
    _, b = two_static(world)
    answer = world.answers[world.join(instance_id="a", version=9)]
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert {each.member_id for each in answer.members} == {answer.member_id, b}


def test_restarted_leader_of_an_older_version_gets_its_old_id_as_leader() -> None:
    world = World()
    old, _ = two_static(world)
    answer = world.answers[world.join(instance_id="a", version=8)]
    assert (answer.leader, answer.members, answer.skip_assignment) == (old, [], False)


def test_new_id_is_known_after_a_restart_of_the_coordinator() -> None:
    world = World()
    two_static(world)
    answer = world.answers[world.join(instance_id="b", version=9)]
    restarted = world.restarted()
    assert restarted.heartbeat("g", answer.member_id, 1, instance_id="b") == E.NONE


def test_restarted_member_is_answered_once_its_new_id_is_committed() -> None:
    world = World()
    two_static(world)
    world.holds_commits = True
    ticket = world.join(instance_id="b", version=9)
    assert ticket not in world.answers
    world.commit()
    assert world.answers[ticket].generation_id == 1


def test_session_of_a_member_whose_new_id_took_long_to_commit_begins_anew() -> None:
    world = World()
    a, _ = two_static(world)
    world.holds_commits = True
    ticket = world.join(instance_id="b", version=9, session_timeout_ms=10_000)
    for _ in range(4):
        world.advance(5_000)
        assert world.heartbeat("g", a, 1) == E.NONE
    world.commit()
    assert world.answers[ticket].generation_id == 1
    world.heartbeat("g", a, 1)
    world.advance(9_999)
    world.heartbeat("g", a, 1)
    world.advance(1)
    assert world.heartbeat("g", a, 1) == E.REBALANCE_IN_PROGRESS


def test_rebalance_before_the_new_id_is_committed_answers_the_member() -> None:
    world = World()
    a, _ = two_static(world)
    world.holds_commits = True
    ticket = world.join(instance_id="b", version=9)
    again = world.join("g", a, instance_id="a", version=9)
    world.commit()
    assert world.answers[ticket].generation_id == world.answers[again].generation_id == 2


@pytest.mark.parametrize("api", ["heartbeat", "sync", "commit", "join", "leave"])
def test_whoever_uses_the_old_id_is_fenced(api: str) -> None:
    world = World()
    _, old = two_static(world)
    world.join(instance_id="b", version=9)
    match api:
        case "heartbeat":
            error = world.heartbeat("g", old, 1, instance_id="b")
        case "sync":
            error = world.answers[world.sync("g", old, 1, instance_id="b")].error_code
        case "commit":
            ticket = world.commit_offsets(
                "g", {("t", 0): 1}, member_id=old, generation=1, instance_id="b"
            )
            [error] = world.commit_errors(ticket)
        case "join":
            error = world.answers[world.join("g", old, instance_id="b")].error_code
        case _:
            error = world.leave("g", (old, "b")).members[0].error_code
    assert error == E.FENCED_INSTANCE_ID
    assert world.fetch("g", {"t": [0]}) == {("t", 0): (E.NONE, -1)}


def test_whoever_waits_under_the_old_id_is_fenced_at_once() -> None:
    world = World()
    a, b = two_static(world)
    waits = world.join("g", a, instance_id="a", protocols=[("range", b"new")])
    world.join(instance_id="a", version=9)
    assert world.answers[waits].error_code == E.FENCED_INSTANCE_ID
    assert world.answers[waits].member_id == a
    assert world.heartbeat("g", b, 1) == E.REBALANCE_IN_PROGRESS


def test_waiting_sync_of_the_old_id_is_fenced_and_the_group_rebalances() -> None:
    world = World()
    tickets = [world.join(instance_id=each, version=9) for each in "ab"]
    world.advance(0)
    a, b = (world.answers[each].member_id for each in tickets)
    waits = world.sync("g", b, 1, instance_id="b")
    world.join(instance_id="b", version=9)
    assert world.answers[waits].error_code == E.FENCED_INSTANCE_ID
    # The leader may have assigned to the old id already.
    assert world.heartbeat("g", a, 1) == E.REBALANCE_IN_PROGRESS


def test_restart_with_another_protocol_rebalances() -> None:
    world = World()
    tickets = [
        world.join(instance_id=each, version=9, protocols=[("a", b""), ("b", b"")]) for each in "xy"
    ]
    world.advance(0)
    x, y = (world.answers[each].member_id for each in tickets)
    world.sync("g", y, 1, protocol_name="a")
    world.sync("g", x, 1, {x: b"", y: b""}, protocol_name="a")
    ticket = world.join(instance_id="y", version=9, protocols=[("b", b"")])
    assert ticket not in world.answers
    assert world.heartbeat("g", x, 1) == E.REBALANCE_IN_PROGRESS


def test_static_restart_with_other_metadata_does_not_rebalance() -> None:
    world = World()
    a, _ = two_static(world)
    ticket = world.join(instance_id="b", version=9, protocols=[("range", b"more topics")])
    assert world.answers[ticket].generation_id == 1
    described = {each.group_instance_id: each for each in world.describe().members}
    assert described["b"].member_metadata == b"more topics"
    assert world.heartbeat("g", a, 1) == E.NONE


def test_static_member_that_stays_away_is_removed_when_its_session_ends() -> None:
    world = World()
    a, _ = two_static(world)
    for _ in range(3):
        world.advance(5_000)
        assert world.heartbeat("g", a, 1) in {E.NONE, E.REBALANCE_IN_PROGRESS}
    assert world.heartbeat("g", a, 1) == E.REBALANCE_IN_PROGRESS
    assert [each.group_instance_id for each in world.describe().members] == ["a"]


def test_instance_that_nobody_knows_is_unknown() -> None:
    world = World()
    a, _ = two_static(world)
    assert world.heartbeat("g", a, 1, instance_id="nobody") == E.UNKNOWN_MEMBER_ID


# A new id that cannot be written.


def test_both_joins_of_an_instance_are_answered_if_the_write_fails() -> None:
    world = World()
    a, old = two_static(world)
    world.join("g", a, instance_id="a")
    waits = world.join("g", old, instance_id="b")
    world.advance(0)
    world.sync("g", a, 2, {a: b"1", old: b"2"}, instance_id="a")
    assert world.answers[waits].generation_id == 2
    world.holds_commits = True
    first = world.join(instance_id="b", version=9)
    second = world.join(instance_id="b", version=9)
    world.fail_commits(E.NOT_LEADER_OR_FOLLOWER)
    assert world.answers[first].error_code == E.NOT_COORDINATOR
    assert world.answers[second].error_code == E.NOT_COORDINATOR


def test_new_id_that_cannot_be_written_is_taken_back() -> None:
    world = World()
    a, old = two_static(world)
    world.fails_appends = E.NOT_ENOUGH_REPLICAS
    ticket = world.join(
        instance_id="b", version=9, protocols=[("range", b"new")], session_timeout_ms=20_000
    )
    answer = world.answers[ticket]
    assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE
    assert answer.member_id == ""
    world.fails_appends = None
    assert world.heartbeat("g", old, 1, instance_id="b") == E.NONE
    assert world.heartbeat("g", a, 1) == E.NONE
    described = {each.group_instance_id: each for each in world.describe().members}
    assert described["b"].member_metadata == b"meta"
    # Its session is the old one again.
    world.advance(10_000)
    assert world.heartbeat("g", old, 1, instance_id="b") == E.UNKNOWN_MEMBER_ID
