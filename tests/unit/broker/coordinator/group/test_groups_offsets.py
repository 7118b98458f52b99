"""Committed offsets: who may commit, what is kept, fetched and deleted."""

from typing import Any

import pytest

from broker.coordinator.group.decision_builder import GroupLimits
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from tests.support.coordinator.world import World

E = ErrorCode
HERE = {("t", 0): 5}
ID, OTHER_ID = b"1" * 16, b"2" * 16


# Members.


def test_member_of_the_generation_commits_and_anybody_fetches() -> None:
    world = World()
    leader, _ = world.stable()
    ticket = world.commit_offsets("g", HERE, member_id=leader, generation=1)
    assert world.commit_errors(ticket) == [E.NONE]
    assert world.fetch("g", {"t": [0]}) == {("t", 0): (E.NONE, 5)}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"generation": 0}, E.ILLEGAL_GENERATION),
        ({"generation": 2}, E.ILLEGAL_GENERATION),
        ({"generation": -1}, E.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": "", "generation": -1}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, E.UNKNOWN_MEMBER_ID),
        ({"instance_id": "nobody"}, E.UNKNOWN_MEMBER_ID),
    ],
    ids=str,
)
def test_commit_to_a_group_with_members_is_refused(
    change: dict[str, Any], error: ErrorCode
) -> None:
    world = World()
    leader, _ = world.stable()
    asked: dict[str, Any] = {"member_id": leader, "generation": 1} | change
    ticket = world.commit_offsets("g", {("t", 0): 5, ("t", 1): 6}, **asked)
    assert world.commit_errors(ticket) == [error, error]
    assert world.fetch("g") == {}


def test_commit_while_members_join_is_taken_from_the_old_generation() -> None:
    world = World()
    leader, _ = world.stable()
    world.join()
    ticket = world.commit_offsets("g", HERE, member_id=leader, generation=1)
    assert world.commit_errors(ticket) == [E.NONE]


def test_commit_while_members_sync_must_wait_for_the_assignment() -> None:
    world = World()
    joined = world.join()
    world.advance(0)
    member = world.answers[joined].member_id
    ticket = world.commit_offsets("g", HERE, member_id=member, generation=1)
    assert world.commit_errors(ticket) == [E.REBALANCE_IN_PROGRESS]


def test_member_that_was_removed_does_not_commit_over_the_others() -> None:
    world = World()
    leader, silent = world.stable(session_timeout_ms=10_000)
    world.advance(9_000)
    world.commit_offsets("g", HERE, member_id=leader, generation=1)
    world.advance(1_000)
    ticket = world.commit_offsets("g", {("t", 0): 1}, member_id=silent, generation=1)
    assert world.commit_errors(ticket) == [E.UNKNOWN_MEMBER_ID]
    assert world.fetch("g", {"t": [0]}) == {("t", 0): (E.NONE, 5)}


# Commits without a group.


def test_commit_without_members_makes_a_simple_group() -> None:
    world = World()
    assert world.commit_errors(world.commit_offsets("simple", HERE)) == [E.NONE]
    described = world.describe("simple")
    assert (described.group_state, described.protocol_type) == ("Empty", "")
    assert [each.group_id for each in world.state.groups()] == ["simple"]


@pytest.mark.parametrize(
    ("version", "error"), [(8, E.ILLEGAL_GENERATION), (9, E.GROUP_ID_NOT_FOUND)]
)
def test_commit_with_a_generation_to_no_group_is_refused(version: int, error: ErrorCode) -> None:
    world = World()
    ticket = world.commit_offsets("none", HERE, member_id="m", generation=1, version=version)
    assert world.commit_errors(ticket) == [error]
    assert list(world.state.groups()) == []


def test_empty_group_takes_commits_of_nobody() -> None:
    world = World()
    [member] = world.stable(members=1)
    world.leave("g", (member, None))
    assert world.commit_errors(world.commit_offsets("g", HERE)) == [E.NONE]


def test_simple_group_takes_a_member() -> None:
    world = World()
    world.commit_offsets("g", HERE)
    ticket = world.join()
    world.advance(0)
    assert world.answers[ticket].generation_id == 1
    assert world.fetch("g") == {("t", 0): (E.NONE, 5)}


# What is committed.


@pytest.mark.parametrize("offset", [-(2**63), -1, 0, 2**63 - 1])
def test_any_offset_is_taken(offset: int) -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): offset})
    assert world.fetch("g", {"t": [0]}) == {("t", 0): (E.NONE, offset)}
    assert world.restarted().fetch("g", {"t": [0]}) == {("t", 0): (E.NONE, offset)}


@pytest.mark.parametrize("partition", [0, 255, 2**31 - 1, -1])
def test_any_partition_is_taken(partition: int) -> None:
    world = World()
    world.commit_offsets("g", {("t", partition): 5})
    assert world.restarted().fetch("g") == {("t", partition): (E.NONE, 5)}


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (None, E.NONE),
        ("x" * 4_096, E.NONE),
        ("x" * 4_097, E.OFFSET_METADATA_TOO_LARGE),
        ("ü" * 4_096, E.NONE),
        ("\N{GRINNING FACE}" * 2_048, E.NONE),
        ("\N{GRINNING FACE}" * 2_049, E.OFFSET_METADATA_TOO_LARGE),
    ],
    ids=["null", "limit", "above", "umlauts", "two-units-each", "two-units-above"],
)
def test_metadata_has_a_limit_in_javas_characters(metadata: str | None, error: ErrorCode) -> None:
    world = World()
    assert world.commit_errors(world.commit_offsets("g", HERE, metadata=metadata)) == [error]
    assert len(world.fetch("g")) == (error == E.NONE)


def test_partitions_with_too_much_metadata_do_not_keep_the_others_back() -> None:
    world = World(GroupLimits(offset_metadata_bytes_max=3))
    cls = request(ApiKey.OFFSET_COMMIT).cls
    slot = cls.Topics.Partitions
    asked = cls(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[
            cls.Topics(
                name="t",
                partitions=[
                    slot(partition_index=0, committed_offset=1, committed_metadata="long"),
                    slot(partition_index=1, committed_offset=2, committed_metadata="ok"),
                ],
            )
        ],
    )
    ticket = world.ask(
        lambda each: world.state.commit_offsets(each, asked, version=9, now=world.now)
    )
    assert world.commit_errors(ticket) == [E.OFFSET_METADATA_TOO_LARGE, E.NONE]
    assert world.fetch("g") == {("t", 1): (E.NONE, 2)}


def test_commit_that_fails_is_not_visible_and_names_each_partition() -> None:
    world = World()
    world.fails_appends = E.NOT_LEADER_OR_FOLLOWER
    ticket = world.commit_offsets("g", {("t", 0): 5, ("t", 1): 6})
    assert world.commit_errors(ticket) == [E.NOT_COORDINATOR, E.NOT_COORDINATOR]
    assert world.fetch("g") == {}
    assert list(world.state.groups()) == []


def test_commit_is_answered_once_it_is_committed() -> None:
    world = World()
    world.holds_commits = True
    ticket = world.commit_offsets("g", HERE)
    assert ticket not in world.answers
    world.commit()
    assert world.commit_errors(ticket) == [E.NONE]


def test_later_commit_replaces_an_earlier_one_and_may_go_back() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 9})
    world.commit_offsets("g", {("t", 0): 3})
    assert world.fetch("g") == {("t", 0): (E.NONE, 3)}
    assert world.state.counts.offsets == 1


# Fetching.


def test_what_was_not_committed_is_minus_one() -> None:
    world = World()
    world.commit_offsets("g", HERE)
    nothing = (E.NONE, -1)
    assert world.fetch("g", {"t": [1], "u": [0]}) == {("t", 1): nothing, ("u", 0): nothing}
    assert world.fetch("none", {"t": [0]}) == {("t", 0): nothing}
    assert world.fetch("none") == {}


def test_offsets_of_an_earlier_topic_of_the_name_are_not_fetched_by_id() -> None:
    world = World()
    world.commit_offsets("g", HERE, topic_id=ID)
    assert world.fetch("g", {"t": [0]}, topic_id=ID) == {("t", 0): (E.NONE, 5)}
    assert world.fetch("g", {"t": [0]}, topic_id=OTHER_ID) == {("t", 0): (E.NONE, -1)}
    assert world.fetch("g", {"t": [0]}) == {("t", 0): (E.NONE, 5)}
    world.commit_offsets("g", HERE)  # by a client whose topic was not known
    assert world.fetch("g", {"t": [0]}, topic_id=OTHER_ID) == {("t", 0): (E.NONE, 5)}


# Transactions.


def txn_commit(world: World, offset: int, *, producer_id: int, **fields: Any) -> list[int]:
    """TxnOffsetCommit of t-0 in the group, its records replayed as of a transactional batch."""
    cls = request(ApiKey.TXN_OFFSET_COMMIT).cls
    slot = cls.Topics.Partitions(partition_index=0, committed_offset=offset)
    asked = cls(group_id="g", topics=[cls.Topics(name="t", partitions=[slot])], **fields)
    decision = world.state.commit_transaction_offsets(1, asked, now=world.now)
    for record in decision.records:
        at = len(world.log)
        world.log.append((at, record))
        world.state.replay(record.key, record.value, offset=at, producer_id=producer_id)
    [answer] = decision.answers
    return [each.error_code for topic in answer.response.topics for each in topic.partitions]


def test_offset_of_an_open_transaction_is_not_visible() -> None:
    world = World()
    world.commit_offsets("g", HERE)
    assert txn_commit(world, 9, producer_id=7) == [E.NONE]
    assert world.fetch("g", {"t": [0]}) == {("t", 0): (E.NONE, 5)}
    stable = world.fetch("g", {"t": [0, 1]}, require_stable=True)
    assert stable == {("t", 0): (E.UNSTABLE_OFFSET_COMMIT, -1), ("t", 1): (E.NONE, -1)}
    assert world.fetch("g", require_stable=True) == {("t", 0): (E.UNSTABLE_OFFSET_COMMIT, -1)}


@pytest.mark.parametrize(("committed", "offset"), [(True, 9), (False, 5)])
def test_marker_decides_on_the_offsets_of_its_transaction(committed: bool, offset: int) -> None:
    world = World()
    world.commit_offsets("g", HERE)
    txn_commit(world, 9, producer_id=7)
    world.state.replay_marker(8, committed=not committed)  # of somebody else
    world.state.replay_marker(7, committed=committed)
    assert world.fetch("g", require_stable=True) == {("t", 0): (E.NONE, offset)}
    assert world.state.counts.pending_offsets == 0


def test_newer_plain_commit_is_not_undone_by_a_marker() -> None:
    world = World()
    txn_commit(world, 9, producer_id=7)
    world.commit_offsets("g", {("t", 0): 12})
    world.state.replay_marker(7, committed=True)
    assert world.fetch("g") == {("t", 0): (E.NONE, 12)}


def test_two_transactions_at_once_are_told_apart() -> None:
    world = World()
    txn_commit(world, 1, producer_id=7)
    txn_commit(world, 2, producer_id=8)
    world.state.replay_marker(8, committed=True)
    assert world.fetch("g", require_stable=True) == {("t", 0): (E.UNSTABLE_OFFSET_COMMIT, -1)}
    world.state.replay_marker(7, committed=True)  # older in the log
    assert world.fetch("g", require_stable=True) == {("t", 0): (E.NONE, 2)}


def test_transactional_commit_checks_members_that_name_themselves() -> None:
    world = World()
    leader, _ = world.stable()
    assert txn_commit(world, 1, producer_id=7, generation_id=2, member_id=leader) == [
        E.ILLEGAL_GENERATION
    ]
    assert txn_commit(world, 1, producer_id=7, generation_id=1, member_id="stranger") == [
        E.UNKNOWN_MEMBER_ID
    ]
    # Producers up to TxnOffsetCommit v2 name nobody.
    assert txn_commit(world, 1, producer_id=7) == [E.NONE]


def test_transactional_commit_is_taken_while_members_sync() -> None:
    world = World()
    joined = world.join()
    world.advance(0)
    member = world.answers[joined].member_id
    assert txn_commit(world, 1, producer_id=7, generation_id=1, member_id=member) == [E.NONE]


def test_tombstone_takes_pending_offsets_along() -> None:
    world = World()
    world.commit_offsets("g", HERE)
    txn_commit(world, 9, producer_id=7)
    assert delete_offsets(world, "t", [0]) == (E.NONE, [E.NONE])
    world.state.replay_marker(7, committed=True)
    assert world.fetch("g") == {}


# OffsetDelete (KIP-496).


def delete_offsets(
    world: World, topic: str, partitions: list[int], group: str = "g"
) -> tuple[int, list[int]]:
    """OffsetDelete; the error of the answer and those of partitions."""
    cls = request(ApiKey.OFFSET_DELETE).cls
    slots = [cls.Topics.Partitions(partition_index=each) for each in partitions]
    asked = cls(group_id=group, topics=[cls.Topics(name=topic, partitions=slots)])
    ticket = world.ask(lambda each: world.state.delete_offsets(each, asked, now=world.now))
    answer = world.answers[ticket]
    return answer.error_code, [p.error_code for t in answer.topics for p in t.partitions]


def subscription(*topics: str) -> bytes:
    """What a consumer says when it joins: version 0, topics, no user data."""
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def test_offsets_of_an_empty_group_are_deleted() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 5, ("t", 1): 6})
    assert delete_offsets(world, "t", [0, 7]) == (E.NONE, [E.NONE, E.NONE])
    assert world.fetch("g") == world.restarted().fetch("g") == {("t", 1): (E.NONE, 6)}


def test_offset_of_an_open_transaction_alone_can_be_deleted() -> None:
    world = World()
    txn_commit(world, 9, producer_id=7)
    assert delete_offsets(world, "t", [0]) == (E.NONE, [E.NONE])
    world.state.replay_marker(7, committed=True)
    assert world.fetch("g") == {}


def test_offsets_of_topics_that_members_read_are_not_deleted() -> None:
    world = World()
    world.commit_offsets("g", {("read", 0): 5, ("left", 0): 6})
    world.stable(protocols=[("range", subscription("read"))])
    assert delete_offsets(world, "read", [0, 1])[1] == [E.GROUP_SUBSCRIBED_TO_TOPIC] * 2
    assert delete_offsets(world, "left", [0]) == (E.NONE, [E.NONE])
    assert world.fetch("g") == {("read", 0): (E.NONE, 5)}


def test_subscriptions_that_cannot_be_read_count_as_all_topics() -> None:
    world = World()
    world.commit_offsets("g", HERE)
    world.stable(protocols=[("range", b"?")])
    assert delete_offsets(world, "t", [0])[1] == [E.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_another_protocol_type_stay_until_the_group_is_empty() -> None:
    world = World()
    world.commit_offsets("g", HERE)
    world.stable(protocol_type="connect")
    assert delete_offsets(world, "t", [0]) == (E.NON_EMPTY_GROUP, [])


@pytest.mark.parametrize(
    ("group", "error"), [("none", E.GROUP_ID_NOT_FOUND), ("", E.INVALID_GROUP_ID)]
)
def test_offsets_of_no_group_are_not_deleted(group: str, error: ErrorCode) -> None:
    assert delete_offsets(World(), "t", [0], group) == (error, [])


# DeleteGroups.


def delete_group(world: World, group: str = "g") -> int:
    """DeleteGroups of one group; its error."""
    ticket = world.ask(lambda each: world.state.delete_group(each, group, now=world.now))
    return int(world.answers[ticket].error_code)


def test_deleted_empty_group_loses_its_offsets_and_stays_deleted() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 5, ("u", 1): 6})
    [member] = world.stable(members=1)
    world.leave("g", (member, None))
    assert delete_group(world) == E.NONE
    for each in (world, world.restarted()):
        assert each.fetch("g") == {}
        assert each.describe().error_code == E.GROUP_ID_NOT_FOUND
        assert each.state.counts.offsets == 0


def test_group_with_members_is_not_deleted() -> None:
    world = World()
    leader, _ = world.stable()
    assert delete_group(world) == E.NON_EMPTY_GROUP
    assert world.heartbeat("g", leader, 1) == E.NONE


def test_group_that_waits_for_a_member_to_come_is_not_deleted() -> None:
    world = World()
    [member] = world.stable(members=1)
    given = world.answers[world.join(version=4)].member_id
    world.leave("g", (member, None))
    assert (world.describe().group_state, world.describe().members) == ("PreparingRebalance", [])
    assert delete_group(world) == E.NON_EMPTY_GROUP
    assert world.answers[world.join("g", given, version=4)].error_code == E.NONE


def test_group_that_is_not_there_is_not_deleted() -> None:
    world = World()
    assert delete_group(world) == E.GROUP_ID_NOT_FOUND
    assert world.log == []


def test_offsets_of_open_transactions_go_with_their_group() -> None:
    world = World()
    txn_commit(world, 9, producer_id=7)
    assert delete_group(world) == E.NONE
    world.state.replay_marker(7, committed=True)
    assert world.fetch("g") == {}


def test_id_that_was_given_out_means_nothing_once_its_group_is_deleted() -> None:
    world = World()
    given = world.answers[world.join(version=4)].member_id
    assert delete_group(world) == E.NONE
    assert world.timers == {}
    assert world.answers[world.join("g", given)].error_code == E.UNKNOWN_MEMBER_ID


# Topics that are deleted.


def test_offsets_of_a_deleted_topic_are_gone() -> None:
    world = World()
    world.commit_offsets("g", {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}, topic_id=ID)
    world.commit_offsets("h", {("t", 0): 5})
    assert world.delete_topics({"t": ID}) == 3
    for each in (world, world.restarted()):
        assert each.fetch("g") == {("u", 0): (E.NONE, 7)}
        assert each.fetch("h") == {}


def test_deleted_topic_of_many_partitions_and_groups_comes_in_slices() -> None:
    world = World()
    for number in range(700):
        world.commit_offsets("wide", {("t", number): 5, ("u", number): 5})
        world.commit_offsets(f"g{number}", {("u", 0): 5})
    slices = list(world.state.topics_deleted({"t": ID, "other": ID}, world.now))
    assert len(slices) > 1
    assert sum(len(each.records) for each in slices) == 700
    assert all(len(each.records) <= 500 for each in slices)


def test_offsets_of_the_next_topic_of_the_name_stay() -> None:
    world = World()
    world.commit_offsets("g", HERE, topic_id=OTHER_ID)
    assert world.delete_topics({"t": ID}) == 0
    assert world.fetch("g") == {("t", 0): (E.NONE, 5)}


def test_pending_offsets_of_a_deleted_topic_are_gone() -> None:
    world = World()
    txn_commit(world, 9, producer_id=7)
    assert world.delete_topics({"t": ID}) == 1
    world.state.replay_marker(7, committed=True)
    assert world.fetch("g") == {}


# Describing.


def test_member_metadata_is_told_of_stable_groups_only() -> None:
    world = World()
    leader, _ = world.stable()
    stable = world.describe()
    assert (stable.protocol_data, stable.members[0].member_metadata) == ("range", b"meta")
    assert stable.members[0].client_host == "/127.0.0.1"
    world.join("g", leader)
    rebalancing = world.describe()
    assert (rebalancing.protocol_data, rebalancing.members[0].member_metadata) == ("", b"")
    assert rebalancing.group_state == "PreparingRebalance"


@pytest.mark.parametrize(("version", "error"), [(5, E.NONE), (6, E.GROUP_ID_NOT_FOUND)])
def test_group_that_is_not_there_is_dead(version: int, error: ErrorCode) -> None:
    slot = World().state.describe("none", version=version)
    assert (slot.group_state, slot.error_code) == ("Dead", error)
    assert (slot.error_message == "Group none not found.") == (version >= 6)
