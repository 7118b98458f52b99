"""Loading: what a restart knows, and what a damaged or foreign record costs."""

import struct

import pytest

from broker.coordinator.group.decision import DamagedRecord, GroupRecord, Now
from broker.coordinator.group.decision_builder import GroupLimits
from broker.coordinator.group.records import CommittedOffset, group_key, offset_key, offset_value
from broker.coordinator.group.state import GroupState
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.codec import message
from tests.support.coordinator.world import World

E = ErrorCode
VALUE = offset_value(CommittedOffset(5, -1, "", 0))


def key(kind: int, group: str, rest: bytes = b"") -> bytes:
    """A key of any type: they all begin with the group id."""
    name = group.encode()
    return struct.pack(">hh", kind, len(name)) + name + rest


def test_restart_knows_generation_members_and_offsets() -> None:
    world = World()
    leader, follower = world.stable()
    world.commit_offsets("g", {("t", 0): 5}, member_id=leader, generation=1)
    restarted = world.restarted()
    assert restarted.describe() == world.describe()
    assert restarted.fetch("g") == {("t", 0): (E.NONE, 5)}
    assert restarted.heartbeat("g", follower, 1) == E.NONE
    assert world.restarted().answers == {}


def test_generation_that_was_not_assigned_is_not_known_after_a_restart() -> None:
    world = World()
    leader, follower = world.stable()
    world.join("g", leader)
    world.join("g", follower)
    assert world.heartbeat("g", leader, 2) == E.NONE
    restarted = world.restarted()
    assert restarted.heartbeat("g", leader, 2) == E.ILLEGAL_GENERATION
    assert restarted.heartbeat("g", leader, 1) == E.NONE


def test_records_of_a_live_group_change_it_no_more() -> None:
    world = World()
    leader, _ = world.stable()
    world.join("g", leader)
    [stable] = [record for _, record in world.log if b"meta" in (record.value or b"")]
    world.state.replay(stable.key, stable.value, offset=9)
    assert world.describe().group_state == "PreparingRebalance"


@pytest.mark.parametrize(
    ("damaged", "value"),
    [
        (b"", VALUE),
        (b"\0", VALUE),
        (b"\0\1", VALUE),
        (b"\0\1\0\5g", VALUE),
        (b"\0\1\0\1g\0\1t\0\0\0", VALUE),
        (b"\0\1\0\1g\0\1t\0\0\0\0\0", VALUE),
        (b"\0\1\0\1\xff\0\1t\0\0\0\0", VALUE),
        (b"\0\1\0\1g\0\1\xff\0\0\0\0", VALUE),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b""),
        (b"\0\1\0\1g\0\1t\0\0\0\0", VALUE[:-1]),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x09" + VALUE[2:]),
        (b"\0\2\0\1g", b"\0\3\0\1"),
        (b"\0\2\0\1g", b"\0\x09\0\1"),
        (b"\0\3\0\5g", b"\0\0"),
    ],
    ids=lambda each: each.hex() if isinstance(each, bytes) else str(each),
)
def test_damaged_record_is_named_and_costs_its_key_only(damaged: bytes, value: bytes) -> None:
    state = GroupState(GroupLimits())
    good = (offset_key("other", "t", 0), VALUE)
    with pytest.raises(DamagedRecord, match="offset 7"):
        state.replay(damaged, value, offset=7)
    found = state.replay_batch([(1, *good), (7, damaged, value), (8, *good)])
    assert [(each.offset, each.key) for each in found] == [(7, damaged)]
    assert [each.group_id for each in state.groups()] == ["other"]
    assert state.counts.offsets == 1


def test_group_whose_member_is_there_twice_is_damage() -> None:
    world = World()
    world.stable(members=1)
    record = world.log[-1][1]
    assert record.value is not None
    head, one = record.value[:-4], record.value
    at = one.index(b"\0\0\0\1\0\x27")  # one member
    member = one[at + 4 :]
    doubled = one[:at] + b"\0\0\0\2" + member + member
    assert head
    with pytest.raises(DamagedRecord, match="twice"):
        GroupState(GroupLimits()).replay(record.key, doubled, offset=3)


def test_member_of_an_old_broker_rebalances_by_its_session_timeout() -> None:
    world = World()
    schema = message("GroupMetadataValue")
    members = [schema.cls.Members(member_id="m", session_timeout=20_000, subscription=b"meta")]
    value = schema.cls(
        protocol_type="consumer", generation=3, protocol="range", leader="m", members=members
    )
    world.log.append((0, GroupRecord(group_key("g"), b"\0\0" + schema.encode(value, 0))))
    world = world.restarted()
    newcomer = world.join(session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    for _ in range(2):
        world.advance(9_999)
        assert world.heartbeat("g", "m", 3) == E.REBALANCE_IN_PROGRESS
    assert newcomer not in world.answers
    world.advance(2)
    assert world.answers[newcomer].generation_id == 4


def test_quick_loading_is_the_same_as_one_by_one() -> None:
    records: list[tuple[int, bytes, bytes | None]] = []
    for number in range(3_000):
        place = (f"g{number % 3}", f"t{number % 7}", number % 11 - 3)
        written = offset_value(CommittedOffset(number, number % 2, "m" * (number % 3), number))
        records.append((number, offset_key(*place), None if number % 5 == 4 else written))
    quick, slow = World(), World()
    assert quick.state.replay_batch(records) == []
    for offset, each, value in records:
        slow.state.replay(each, value, offset=offset)
    assert quick.all_offsets() == slow.all_offsets()
    assert quick.state.counts == slow.state.counts


def test_keys_of_types_that_nobody_knows_are_counted() -> None:
    state = GroupState(GroupLimits())
    for kind in (99, 99, 1_000):
        state.replay(struct.pack(">h", kind), b"?", offset=1)
    assert state.counts.unknown_records == {99: 2, 1_000: 1}


# Groups of protocols that are not served.


def with_foreign(kind: int, *kinds: int) -> World:
    """A world that loaded a group `g` with keys of these types, and an offset of it."""
    world = World()
    for number, each in enumerate((kind, *kinds)):
        world.log.append((number, GroupRecord(key(each, "g", b"\0\1m"), b"\0\0")))
    world.log.append((9, GroupRecord(offset_key("g", "t", 0), VALUE)))
    return world.restarted()


@pytest.mark.parametrize(
    ("kind", "name"), [(3, "consumer"), (8, "consumer"), (11, "share"), (17, "streams")]
)
def test_foreign_group_is_listed_as_empty_and_described_as_not_classic(
    kind: int, name: str
) -> None:
    world = with_foreign(kind)
    [listed] = world.state.groups()
    assert listed == ("g", name, "Empty", name)
    described = world.describe()
    assert described.error_code == E.GROUP_ID_NOT_FOUND
    assert described.error_message == "Group g is not a classic group."
    assert world.state.counts.foreign_groups == 1


def test_foreign_group_has_offsets_as_any_other() -> None:
    world = with_foreign(3)
    assert world.fetch("g") == {("t", 0): (E.NONE, 5)}
    assert world.commit_errors(world.commit_offsets("g", {("t", 0): 6})) == [E.NONE]
    refused = world.commit_offsets("g", {("t", 0): 7}, member_id="m", generation=3)
    assert world.commit_errors(refused) == [E.UNKNOWN_MEMBER_ID]
    assert world.fetch("g") == {("t", 0): (E.NONE, 6)}


def test_foreign_group_is_no_group_to_members() -> None:
    world = with_foreign(3)
    assert world.heartbeat("g", "m", 1) == E.UNKNOWN_MEMBER_ID
    assert world.answers[world.sync("g", "m", 1)].error_code == E.UNKNOWN_MEMBER_ID
    assert world.leave("g", ("m", None)).members[0].error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("kind", [3, 17])
def test_join_makes_a_classic_group_of_a_foreign_one_that_nobody_can_be_in(kind: int) -> None:
    world = with_foreign(kind, kind + 2)
    ticket = world.join()
    world.advance(0)
    assert world.answers[ticket].generation_id == 1
    for each in (world, world.restarted()):
        assert [listed.type for listed in each.state.groups()] == ["classic"]
        assert each.state.counts.foreign_groups == 0
        assert each.fetch("g") == {("t", 0): (E.NONE, 5)}


def test_join_to_a_share_group_is_inconsistent() -> None:
    world = with_foreign(11)
    assert world.answers[world.join()].error_code == E.INCONSISTENT_GROUP_PROTOCOL


def test_foreign_group_is_deleted_with_all_of_its_keys() -> None:
    world = with_foreign(3, 5, 6)
    ticket = world.ask(lambda each: world.state.delete_group(each, "g", now=world.now))
    assert world.answers[ticket].error_code == E.NONE
    for each in (world, world.restarted()):
        assert list(each.state.groups()) == []
        assert each.fetch("g") == {}


# The end.


def test_unload_answers_all_that_is_parked() -> None:
    world = World()
    leader, _ = world.stable()
    parked_join = world.join("g", leader)
    other = world.join("h")
    world.advance(0)
    second = world.join("h", instance_id="i")
    world.join("h", world.answers[other].member_id)
    member = world.answers[second].member_id
    parked_sync = world.sync("h", member, 2, instance_id="i")
    answers = {each.ticket: each.response for each in world.state.unload()}
    assert set(answers) == {parked_join, parked_sync}
    assert {each.error_code for each in answers.values()} == {E.NOT_COORDINATOR}
    assert answers[parked_join].member_id == leader


def test_state_that_was_unloaded_is_freed_in_slices() -> None:
    state = GroupState(GroupLimits())
    records = [(n, offset_key(f"g{n % 3}", "t", n), VALUE) for n in range(12_000)]
    assert state.replay_batch(records) == []
    state.unload()
    assert len(list(state.let_go())) == 3
    assert state.counts.offsets == 0


# Writes that fail.


@pytest.mark.parametrize(
    ("append", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
    ],
)
def test_assignment_that_cannot_be_written_sends_all_members_to_join_again(
    append: ErrorCode, told: ErrorCode
) -> None:
    world = World()
    tickets = [world.join(), world.join()]
    world.advance(0)
    leader, follower = (world.answers[each].member_id for each in tickets)
    waits = world.sync("g", follower, 1)
    world.fails_appends = append
    done = world.sync("g", leader, 1, {leader: b"x", follower: b"y"})
    assert {world.answers[each].error_code for each in (done, waits)} == {told}
    assert world.answers[done].assignment == b""
    world.fails_appends = None
    assert world.heartbeat("g", leader, 1) == E.REBALANCE_IN_PROGRESS
    # The group stays usable.
    again = [world.join("g", each) for each in (leader, follower)]
    assert {world.answers[each].generation_id for each in again} == {2}


def test_assignment_whose_commit_fails_sends_all_members_to_join_again() -> None:
    world = World()
    joined = world.join()
    world.advance(0)
    member = world.answers[joined].member_id
    world.holds_commits = True
    done = world.sync("g", member, 1, {member: b"x"})
    world.fail_commits(E.NOT_LEADER_OR_FOLLOWER)
    assert world.answers[done].error_code == E.NOT_COORDINATOR
    assert world.describe().group_state == "PreparingRebalance"


@pytest.mark.parametrize("version", [3, 9])
def test_new_group_that_cannot_be_written_is_forgotten(version: int) -> None:
    world = World()
    world.fails_appends = E.NOT_ENOUGH_REPLICAS
    ticket = world.join(version=version)
    assert world.answers[ticket].error_code == E.COORDINATOR_NOT_AVAILABLE
    assert list(world.state.groups()) == []
    assert world.timers == {}


def test_new_group_is_kept_although_its_first_record_failed() -> None:
    world = World()
    world.holds_commits = True
    ticket = world.join()
    world.advance(0)
    world.fail_commits(E.NOT_ENOUGH_REPLICAS)
    member = world.answers[ticket].member_id
    assert world.answers[world.sync("g", member, 1, {member: b"x"})].assignment == b"x"
    assert world.restarted().heartbeat("g", member, 1) == E.NONE


def test_empty_generation_that_cannot_be_written_harms_nobody() -> None:
    world = World()
    [member] = world.stable(members=1)
    world.fails_appends = E.NOT_ENOUGH_REPLICAS
    assert world.leave("g", (member, None)).error_code == E.COORDINATOR_NOT_AVAILABLE
    world.fails_appends = None
    ticket = world.join()
    world.advance(0)
    assert world.answers[ticket].generation_id == 3


def test_a_group_that_was_deleted_is_there_again_with_its_next_offset() -> None:
    state = GroupState(GroupLimits())
    key, value = offset_key("g", "t", 0), offset_value(CommittedOffset(1, -1, "", 0))
    state.replay_batch([(0, key, value), (1, group_key("g"), None), (2, key, value)])
    state.loaded(Now(0, 0))
    assert [group.group_id for group in state.groups()] == ["g"]


@pytest.mark.parametrize("between", [[], [offset_key("g", "u", 0)]], ids=["group", "topic"])
def test_an_offset_comes_back_after_the_last_one_of_its_topic_was_deleted(
    between: list[bytes],
) -> None:
    """Also where loading takes the quick way, which knows partitions by a prefix of their keys."""
    state = GroupState(GroupLimits())
    place = offset_key("g", "t", 0)
    kept = [(each, VALUE) for each in between]
    records = [*kept, (place, VALUE), (place, None), (place, VALUE), (place, VALUE)]
    state.replay_batch([(number, *record) for number, record in enumerate(records)])
    assert state.counts.offsets == 1 + len(between)
    world = World()
    world.state = state
    assert world.fetch("g", {"t": [0]}) == {("t", 0): (E.NONE, 5)}
