"""What groups and their offsets take in memory is counted, and new ones find a bound."""

import logging
from pathlib import Path

import pytest

from broker.coordinator.group.offsets import OffsetStore, size_of
from kafka_protocol.errors import ErrorCode as E
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.coordinator.served import NO_DELAY, ServedGroups
from tests.support.coordinator.world import World

BOUND = 8_000


def in_full(offsets: OffsetStore) -> int:
    """The naive count: all that is kept is looked at."""
    kept = [*offsets.groups.values()]
    for groups in offsets._pending.values():
        kept += groups.values()
    return sum(
        size_of(stored)
        for by_topic in kept
        for partitions in by_topic.values()
        for stored in partitions.values()
    )


def test_each_change_of_an_offset_is_counted() -> None:
    offsets = OffsetStore()
    place = ("g", "t", 1)

    def is_counted() -> bool:
        return offsets.kept_bytes == in_full(offsets)

    offsets.put("g", "t", 0, b"value", record_offset=1)
    assert offsets.kept_bytes == size_of(bytes(8) + b"value")
    offsets.put("g", "t", 0, b"a longer value", record_offset=2)
    assert is_counted()
    offsets.remember_prefix(b"prefix", "g", "t")
    for partition, value in ((0, b"short"), (3, b"new")):
        assert offsets.put_again(b"prefix" + partition.to_bytes(4, "big"), value, 3)
        assert is_counted()
    for producer_id, value in ((7, b"pending"), (7, b"pending again"), (8, b"other")):
        offsets.put_pending(producer_id, place, value, record_offset=4)
        assert is_counted()
    offsets.end_transaction(7, committed=True)
    assert is_counted()
    offsets.end_transaction(8, committed=False)
    assert is_counted()
    offsets.put_pending(9, place, b"dropped", record_offset=6)
    offsets.remove(*place)
    assert is_counted()
    list(offsets.let_go())
    assert offsets.kept_bytes == 0


def test_what_members_said_and_were_given_is_counted_until_the_group_goes() -> None:
    world = World()
    before = world.state.kept_bytes
    world.stable("g", members=2, protocols=[("range", bytes(5_000))])
    assert world.state.kept_bytes > before + 10_000
    assert world.restarted().state.kept_bytes > before + 10_000
    members = [(each, None) for each in world.state._groups["g"].members]
    world.leave("g", *members)
    assert world.state.kept_bytes < before + 3_000
    world.wall_ms += 2 * world.limits.offsets_retention_ms
    world.expire()
    assert world.state.kept_bytes == before


def test_a_group_that_could_not_be_written_is_not_counted() -> None:
    world = World()
    world.fails_appends = E.NOT_LEADER_OR_FOLLOWER
    world.join("g", version=3)
    assert world.state.kept_bytes == 0


def test_without_memory_known_groups_continue_and_new_ones_are_refused() -> None:
    world = World()
    ids = world.stable("g", members=1, protocols=[("range", bytes(20_000))])
    world.commit_offsets("simple", {("t", 0): 1})
    world.budget.most = world.state.kept_bytes  # a quarter of it is left for those that are there
    committed = world.commit_offsets("g", {("t", 0): 5}, member_id=ids[0], generation=1)
    assert world.commit_errors(committed) == [E.NONE]
    assert world.commit_errors(world.commit_offsets("simple", {("t", 1): 5})) == [E.NONE]
    refused = world.commit_offsets("other", {("t", 0): 5, ("t", 1): 5})
    assert world.commit_errors(refused) == [E.INVALID_COMMIT_OFFSET_SIZE] * 2
    assert world.answers[world.join("other")].error_code == E.GROUP_MAX_SIZE_REACHED
    assert {each.group_id for each in world.state.groups()} == {"g", "simple"}
    for group, members in (("g", 2), ("simple", 1)):
        world.join(group)
        assert len(world.state._groups[group].members) == members


@pytest.fixture
def full() -> World:
    """A stable group of two, a simple one, and no room even for what is there."""
    world = World()
    world.stable("g", protocols=[("range", bytes(500))])
    world.commit_offsets("simple", {("t", 0): 1, ("t", 1): 1}, metadata="m" * 200)
    world.budget.most = world.state.kept_bytes // 2
    return world


def members_of(world: World) -> list[str]:
    return list(world.state._groups["g"].members)


def test_without_any_room_consumers_continue_and_nothing_grows(full: World) -> None:
    kept = full.state.kept_bytes
    leader, follower = members_of(full)
    assert full.commit_errors(
        full.commit_offsets("simple", {("t", 0): 9, ("t", 1): 9, ("t", 2): 9}, metadata="n" * 200)
    ) == [E.NONE, E.NONE, E.INVALID_COMMIT_OFFSET_SIZE]
    longer = full.commit_offsets("simple", {("t", 0): 10}, metadata="n" * 201)
    assert full.commit_errors(longer) == [E.INVALID_COMMIT_OFFSET_SIZE]
    assert full.fetch("simple") == {("t", 0): (0, 9), ("t", 1): (0, 9)}
    assert full.state.kept_bytes == kept
    assert full.heartbeat("g", follower, 1) == E.NONE
    for member in (leader, follower):
        full.join("g", member, protocols=[("range", bytes(995))])
    given = {leader: bytes(1_000), follower: bytes(1_000)}
    waiting = full.sync("g", follower, 2)
    full.sync("g", leader, 2, given)
    assert full.answers[waiting].assignment == bytes(1_000)
    assert full.answers[full.join("g")].error_code == E.GROUP_MAX_SIZE_REACHED
    assert full.answers[full.join("g", version=9)].error_code == E.GROUP_MAX_SIZE_REACHED
    unknown = full.answers[full.join("g", "somebody")]
    assert unknown.error_code == E.UNKNOWN_MEMBER_ID
    assert members_of(full) == [leader, follower]
    full.leave("g", (leader, None), (follower, None))
    assert full.state.kept_bytes < kept
    full.wall_ms += 2 * full.limits.offsets_retention_ms
    full.expire()
    assert full.state.kept_bytes == 0


def test_a_short_note_of_an_offset_always_takes_the_place_of_another(full: World) -> None:
    """A note may be a digit longer the next time, and a client may name topics by id now."""
    full.budget.most = 1 << 30
    full.commit_offsets("simple", {("u", 0): 9})
    full.budget.most = 0
    for note, topic_id in (("9", bytes(16)), ("10", b"i" * 16), ("n" * 40, b"i" * 16)):
        said = full.commit_offsets("simple", {("u", 0): 9}, metadata=note, topic_id=topic_id)
        assert full.commit_errors(said) == [E.NONE]
    said = full.commit_offsets("simple", {("u", 0): 9}, metadata="n" * 80, topic_id=b"i" * 16)
    assert full.commit_errors(said) == [E.INVALID_COMMIT_OFFSET_SIZE]


def test_a_member_that_says_too_much_is_refused_and_the_others_continue(full: World) -> None:
    leader, follower = members_of(full)
    waiting = full.join("g", leader)
    asked = full.join("g", follower, protocols=[("range", bytes(1_001))])
    assert full.answers[asked].error_code == E.GROUP_MAX_SIZE_REACHED
    assert members_of(full) == [leader]
    assert full.answers[waiting].generation_id == 2


def test_too_much_metadata_refuses_a_static_member_only_under_its_own_id() -> None:
    world = World()
    world.stable("g", members=1, instance_id="i")
    world.budget.most = 0
    large = [("range", bytes(1_001))]
    fenced = world.answers[world.join("g", "another", instance_id="i", protocols=large)]
    assert fenced.error_code == E.FENCED_INSTANCE_ID
    again = world.answers[world.join("g", instance_id="i")]
    assert (again.error_code, again.generation_id) == (E.NONE, 1)
    refused = world.answers[world.join("g", instance_id="i", protocols=large)]
    assert refused.error_code == E.GROUP_MAX_SIZE_REACHED
    assert not members_of(world)


def test_a_leader_that_assigns_too_much_is_refused_and_the_next_one_leads(full: World) -> None:
    leader, follower = members_of(full)
    for member in (leader, follower):
        full.join("g", member, protocols=[("range", b"other")])
    waiting = full.sync("g", follower, 2)
    asked = full.sync("g", leader, 2, {leader: bytes(1_000), follower: bytes(1_001)})
    assert full.answers[asked].error_code == E.GROUP_MAX_SIZE_REACHED
    assert full.answers[waiting].error_code == E.REBALANCE_IN_PROGRESS
    assert members_of(full) == [follower]
    joined = full.answers[full.join("g", follower)]
    assert (joined.leader, joined.generation_id) == (follower, 3)


def test_one_request_cannot_take_more_than_what_is_left() -> None:
    """The room is asked once for a request: what its first partitions take is subtracted."""
    world = World()
    world.commit_offsets("simple", {("t", 0): 1}, metadata="m" * 1_000)
    world.budget.most = world.state.kept_bytes
    left = world.budget.left(is_new=False)
    many = {("u", number): 1 for number in range(10)}
    said = world.commit_errors(world.commit_offsets("simple", many))
    taken = said.count(E.NONE)
    assert 0 < taken < 10
    assert said == [E.NONE] * taken + [E.INVALID_COMMIT_OFFSET_SIZE] * (10 - taken)
    assert 0 <= world.budget.left(is_new=False) < left - taken * 100
    large = world.join("another", protocols=[("range", bytes(50_000))])
    assert world.answers[large].error_code == E.GROUP_MAX_SIZE_REACHED
    assert {each.group_id for each in world.state.groups()} == {"simple"}


async def test_above_the_bound_new_groups_are_refused_and_those_there_continue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The sum goes over all partitions: the groups here are in different ones."""
    caplog.set_level(logging.WARNING)
    settings = {**NO_DELAY, "tidemark.group.bytes.max": str(BOUND)}
    groups = ServedGroups(tmp_path, partitions=5, settings=settings)

    def commit(group: str) -> int:
        answer = groups.commit(1, group=group)
        return int(answer.topics[0].partitions[0].error_code)

    said = [commit(f"g{n}") for n in range(12)]
    taken = said.count(E.NONE)
    assert 0 < taken < 10
    assert said == [E.NONE] * taken + [E.INVALID_COMMIT_OFFSET_SIZE] * (12 - taken)
    assert len([each for each in groups.coordinator.shards.values() if each.state.kept_bytes]) > 1
    assert commit("g0") == E.NONE
    lines = [each.getMessage() for each in caplog.records if "new groups" in each.getMessage()]
    assert len(lines) == 1
    assert f"tidemark.group.bytes.max={BOUND}" in lines[0]
    gauges = {each.name: each.value for each in groups.world.metrics.samples()}
    assert gauges["tidemark_group_bytes"] == groups.coordinator.kept_bytes
    assert BOUND - 1_300 < groups.coordinator.kept_bytes <= BOUND
    names = [f"g{n}" for n in range(taken)]
    await groups.told(ApiKey.DELETE_GROUPS, 2, groups_names=names)
    assert groups.coordinator.kept_bytes == 0
    assert commit("late") == E.NONE
