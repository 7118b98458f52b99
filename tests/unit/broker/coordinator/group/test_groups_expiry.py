"""When committed offsets and groups end (KIP-211)."""

import pytest

from broker.coordinator.group import retention
from broker.coordinator.group.decision import GroupRecord
from broker.coordinator.group.records import CommittedOffset, offset_key, offset_value
from kafka_protocol.wire.codec import message
from tests.support.coordinator.world import World

DAY_MS = 24 * 3_600_000
KEEP_MS = 7 * DAY_MS


def later(world: World, ms: int) -> None:
    """Move the wall clock only: sessions continue."""
    world.wall_ms += ms


def subscribed_to(*topics: str) -> list[tuple[str, bytes]]:
    """The protocols of a consumer that reads these topics."""
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return [("range", b"\0\0" + len(topics).to_bytes(4, "big") + names)]


def put(world: World, value: bytes, group: str = "g", topic: str = "t") -> None:
    """A record that another broker wrote."""
    offset = len(world.log)
    key = offset_key(group, topic, 0)
    world.log.append((offset, GroupRecord(key, value)))
    world.state.replay(key, value, offset=offset)


def test_offset_of_a_simple_group_ends_its_retention_after_the_commit() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 5})
    later(world, DAY_MS)
    world.commit_offsets("g", {("t", 1): 6})
    later(world, KEEP_MS - DAY_MS - 1)
    assert world.expire() == 0
    later(world, 1)
    assert world.expire() == 1
    assert world.fetch("g") == {("t", 1): (0, 6)}


def test_simple_group_ends_with_its_last_offset() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 5})
    later(world, KEEP_MS)
    assert world.expire() == 2  # the offset's tombstone, and the group's
    assert list(world.state.groups()) == []
    assert list(world.restarted().state.groups()) == []


def test_offsets_of_an_empty_group_end_its_retention_after_it_became_empty() -> None:
    world = World()
    [member] = world.stable(members=1)
    world.commit_offsets("g", {("t", 0): 5}, member_id=member, generation=1)
    later(world, KEEP_MS * 2)
    world.leave("g", (member, None))
    later(world, KEEP_MS - 1)
    assert world.restarted().expire() == world.expire() == 0
    later(world, 1)
    assert world.restarted().expire() == world.expire() == 2
    assert list(world.state.groups()) == []


def test_offsets_of_topics_that_consumers_read_stay() -> None:
    world = World()
    [member] = world.stable(members=1, protocols=subscribed_to("read"))
    world.commit_offsets("g", {("read", 0): 5, ("left", 0): 6}, member_id=member, generation=1)
    later(world, KEEP_MS)
    assert world.expire() == 1
    assert world.fetch("g") == {("read", 0): (0, 5)}
    assert world.describe().group_state == "Stable"


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_offsets_of_members_whose_topics_nobody_knows_stay(protocol_type: str) -> None:
    world = World()
    [member] = world.stable(members=1, protocol_type=protocol_type)
    world.commit_offsets("g", {("t", 0): 5}, member_id=member, generation=1)
    later(world, KEEP_MS)
    assert world.expire() == 0


def test_offsets_stay_while_members_rebalance() -> None:
    world = World()
    [member] = world.stable(members=1, protocols=subscribed_to("read"))
    world.commit_offsets("g", {("left", 0): 6}, member_id=member, generation=1)
    world.join(version=4)
    world.join("g", member, protocols=subscribed_to("read"))
    assert world.describe().group_state == "PreparingRebalance"
    later(world, KEEP_MS)
    assert world.expire() == 0


def test_offset_of_an_open_transaction_stays_and_its_group_with_it() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 5})
    key = offset_key("g", "t", 0)
    value = offset_value(CommittedOffset(9, -1, "", world.wall_ms))
    world.state.replay(key, value, offset=99, producer_id=7)
    later(world, KEEP_MS)
    assert world.expire() == 0
    world.state.replay_marker(7, committed=False)
    assert world.expire() == 2


def test_group_with_an_open_transaction_stays_when_its_last_offset_ends() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 5})
    value = offset_value(CommittedOffset(9, -1, "", world.wall_ms + KEEP_MS))
    world.state.replay(offset_key("g", "t", 1), value, offset=99, producer_id=7)
    later(world, KEEP_MS)
    assert world.expire() == 1
    world.state.replay_marker(7, committed=True)
    assert world.fetch("g") == {("t", 1): (0, 9)}
    assert [each.group_id for each in world.state.groups()] == ["g"]


def test_retention_that_a_client_asked_for_counts() -> None:
    world = World()
    world.commit_offsets("short", {("t", 0): 5}, retention_ms=1_000, version=4)
    world.commit_offsets("long", {("t", 0): 5}, retention_ms=KEEP_MS * 2, version=4)
    for _ in range(2):  # also as read from the log
        later(world, 500)
    world = world.restarted()
    assert world.expire() == 2
    assert world.fetch("short") == {}
    later(world, KEEP_MS)
    assert world.expire() == 0
    later(world, KEEP_MS)
    assert world.expire() == 2


def test_retention_beyond_the_end_of_time_keeps_the_offset() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 5}, retention_ms=2**63 - 1, version=4)
    later(world, 100 * KEEP_MS)
    assert world.expire() == 0


def test_a_group_of_an_old_broker_expires_by_the_times_of_its_commits() -> None:
    world = World()
    schema = message("GroupMetadataValue")
    value = schema.cls(protocol_type="consumer", protocol=None, leader=None)
    put(world, offset_value(CommittedOffset(5, -1, "", world.wall_ms)))
    old = b"\0\1" + schema.encode(value, 1)
    world.log.append((1, GroupRecord(b"\0\2\0\1g", old)))
    world = world.restarted()
    later(world, KEEP_MS - 1)
    assert world.expire() == 0
    later(world, 1)
    assert world.expire() == 2


def test_empty_group_without_offsets_ends_at_once() -> None:
    world = World()
    [member] = world.stable(members=1)
    world.leave("g", (member, None))
    assert world.expire() == 1
    assert list(world.state.groups()) == []


def test_group_whose_first_member_is_about_to_join_stays() -> None:
    world = World()
    given = world.answers[world.join(version=4)].member_id
    assert world.expire() == 0
    ticket = world.join("g", given, version=4)
    world.advance(0)
    assert world.answers[ticket].generation_id == 1


def test_group_whose_first_member_never_came_goes_by_its_commits() -> None:
    world = World()
    world.join(version=4)
    world.advance(10_000)
    later(world, DAY_MS)
    world.commit_offsets("g", {("t", 0): 5})
    later(world, KEEP_MS - 1)
    assert world.restarted().expire() == world.expire() == 0
    later(world, 1)
    assert world.restarted().expire() == world.expire() == 2


def test_clock_that_jumps_back_expires_nothing() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 5})
    later(world, -KEEP_MS)
    assert world.expire() == 0


def test_expiry_of_many_offsets_comes_in_slices_and_lets_commits_between() -> None:
    world = World()
    for partition in range(retention.SLICE * 2):
        world.commit_offsets("g", {("t", partition): partition})
    later(world, KEEP_MS)
    slices = 0
    last = retention.SLICE * 2 - 1
    for decision in world.state.expire_offsets(world.now):
        assert len(decision.records) <= retention.SLICE + 1
        world.carry_out(decision)
        slices += 1
        if slices == 1:  # the last partition is committed again, so that its group stays
            world.commit_offsets("g", {("t", last): 1})
    assert slices == 3
    assert world.fetch("g") == {("t", last): (0, 1)}
    assert [each.group_id for each in world.state.groups()] == ["g"]


def test_many_groups_without_offsets_come_in_slices_as_well() -> None:
    world = World()
    for number in range(retention.SLICE + 1):
        world.join(f"g{number}", version=3)
    slices = list(world.state.expire_offsets(world.now))
    assert len(slices) == 2
