"""Requests about groups where the handlers decide: filters, unknown topics, places of errors."""

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.describe_groups import ALL_GROUP_OPERATIONS
from broker.replica.hosting import ReplicaEvents
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.coordinator.served import ServedGroups

E = ErrorCode
NOT_ASKED = -(2**31)
STRANGE_ID = b"nobody's topic!!"


@pytest.fixture
def groups(tmp_path: Path) -> ServedGroups:
    return ServedGroups(tmp_path)


def lose(groups: ServedGroups) -> None:
    """Let another broker lead what this one led."""
    shard = groups.coordinator.shards[0]
    groups.coordinator.on_replicas(ReplicaEvents(followed=(shard.partition,)))


async def commit(
    groups: ServedGroups, topics: dict[Any, list[int]], version: int = 8, **fields: Any
) -> list[tuple[Any, int, int]]:
    """Commit offset 5 in epoch 2 of topics by name or id: topic, partition and error of each."""
    key = "topic_id" if version >= 10 else "name"
    committed = {"committed_offset": 5, "committed_leader_epoch": 2, "committed_metadata": "m"}
    asked = [
        {key: topic, "partitions": [{"partition_index": each, **committed} for each in partitions]}
        for topic, partitions in topics.items()
    ]
    answer = await groups.told(ApiKey.OFFSET_COMMIT, version, group_id="g", topics=asked, **fields)
    return slots(answer.topics, key)


def slots(topics: list[Any], key: str = "name") -> list[tuple[Any, int, int]]:
    return [
        (getattr(topic, key), one.partition_index, one.error_code)
        for topic in topics
        for one in topic.partitions
    ]


# OffsetCommit.


async def test_unknown_partitions_are_refused_and_the_others_are_committed(
    groups: ServedGroups,
) -> None:
    found = await commit(groups, {"nosuch": [0], "t": [1, 7]})
    assert sorted(found) == [
        ("nosuch", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, E.NONE),
        ("t", 7, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await groups.committed(partition=1) == (0, 5)


async def test_each_topic_of_a_commit_is_answered_once(groups: ServedGroups) -> None:
    committed = {"committed_offset": 5, "committed_metadata": ""}
    asked = [
        {"name": name, "partitions": [{"partition_index": each, **committed} for each in numbers]}
        for name, numbers in (("nosuch", [0]), ("t", [7, 8]))
    ]
    answer = await groups.told(ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=asked)
    assert [topic.name for topic in answer.topics] == ["nosuch", "t"]
    asked[1]["partitions"] += [{"partition_index": 0, **committed}]  # type: ignore[operator]
    answer = await groups.told(ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=asked)
    assert [topic.name for topic in answer.topics] == ["nosuch", "t"]


async def test_a_commit_by_id_is_refused_where_nobody_has_the_id(groups: ServedGroups) -> None:
    topic_id = groups.world.topics["t"].id
    found = await commit(groups, {STRANGE_ID: [0], topic_id: [0]}, version=10)
    assert found == [(STRANGE_ID, 0, E.UNKNOWN_TOPIC_ID), (topic_id, 0, E.NONE)]


# OffsetFetch.


async def fetched(served: ServedGroups, version: int, **fields: Any) -> Any:
    return await served.told(ApiKey.OFFSET_FETCH, version, **fields)


ASKED = [{"name": "t", "partition_indexes": [0]}]


@pytest.mark.parametrize("version", [1, 4, 5, 7, 8, 9, 10])
async def test_every_version_returns_offset_and_metadata_and_some_the_epoch(
    groups: ServedGroups, version: int
) -> None:
    await commit(groups, {"t": [0]})
    if version < 8:
        [topic] = (await fetched(groups, version, group_id="g", topics=ASKED)).topics
    else:
        topic_id = groups.world.topics["t"].id
        by_id = [{"topic_id": topic_id, "partition_indexes": [0]}]
        asked = {"group_id": "g", "topics": ASKED if version < 10 else by_id}
        [group] = (await fetched(groups, version, groups=[asked])).groups
        [topic] = group.topics
        assert topic.topic_id == (topic_id if version >= 10 else bytes(16))
    [one] = topic.partitions
    assert (one.committed_offset, one.metadata, one.error_code) == (5, "m", E.NONE)
    assert one.committed_leader_epoch == (2 if version >= 5 else -1)


@pytest.mark.parametrize(("version", "of_all", "of_one"), [(1, 0, 16), (2, 16, 0), (7, 16, 0)])
async def test_a_group_error_is_at_the_top_level_where_the_version_has_a_field(
    groups: ServedGroups, version: int, of_all: int, of_one: int
) -> None:
    lose(groups)
    answer = await fetched(groups, version, group_id="g", topics=ASKED)
    errors = [one.error_code for topic in answer.topics for one in topic.partitions]
    assert getattr(answer, "error_code", 0) == of_all
    assert errors == ([of_one] if of_one else [])


async def test_unknown_topic_ids_are_named_unless_the_group_has_an_error(
    groups: ServedGroups,
) -> None:
    asked = {"group_id": "g", "topics": [{"topic_id": STRANGE_ID, "partition_indexes": [3]}]}
    [group] = (await fetched(groups, 10, groups=[asked])).groups
    assert slots(group.topics, "topic_id") == [(STRANGE_ID, 3, E.UNKNOWN_TOPIC_ID)]
    lose(groups)
    [group] = (await fetched(groups, 10, groups=[asked])).groups
    assert (group.error_code, group.topics) == (E.NOT_COORDINATOR, [])


# OffsetDelete.


async def deleted(groups: ServedGroups, topics: dict[str, list[int]], group: str = "g") -> Any:
    asked = [
        {"name": name, "partitions": [{"partition_index": each} for each in partitions]}
        for name, partitions in topics.items()
    ]
    return await groups.told(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=asked)


async def test_offsets_of_what_the_cluster_does_not_have_cannot_be_deleted(
    groups: ServedGroups,
) -> None:
    await commit(groups, {"t": [0, 1]})
    answer = await deleted(groups, {"nosuch": [0], "t": [7, 0]})
    assert [topic.name for topic in answer.topics] == ["nosuch", "t"]
    assert sorted(slots(answer.topics)) == [
        ("nosuch", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, E.NONE),
        ("t", 7, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    answer = await deleted(groups, {"nosuch": [0]})
    assert slots(answer.topics) == [("nosuch", 0, E.UNKNOWN_TOPIC_OR_PARTITION)]
    assert await groups.committed() == (0, -1)
    assert await groups.committed(partition=1) == (0, 5)


async def test_an_error_of_the_group_is_all_that_is_said(groups: ServedGroups) -> None:
    answer = await deleted(groups, {"nosuch": [0], "t": [0]}, group="none")
    assert (answer.error_code, answer.topics) == (E.GROUP_ID_NOT_FOUND, [])


# Names that are none.


@pytest.mark.parametrize(
    "api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP]
)
async def test_an_empty_name_is_refused_whoever_leads_its_partition(
    groups: ServedGroups, api_key: ApiKey
) -> None:
    lose(groups)
    answer = await groups.told(api_key, 3, group_id="", member_id="m")
    assert answer.error_code == E.INVALID_GROUP_ID
    answer = await groups.told(api_key, 3, group_id="g", member_id="m")
    assert answer.error_code == E.NOT_COORDINATOR


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None), (9, None)])
async def test_a_refused_join_names_no_protocol_as_its_version_can(
    groups: ServedGroups, version: int, name: str | None
) -> None:
    answer = await groups.told(ApiKey.JOIN_GROUP, version, group_id="g", member_id="stranger")
    assert answer.error_code != E.NONE
    assert answer.protocol_name == name


# ListGroups, DescribeGroups, DeleteGroups.


@pytest.mark.parametrize(
    ("states", "types", "names"),
    [
        ([], [], {"simple", "used"}),
        (["EMPTY"], [], {"simple"}),
        (["completingrebalance"], ["Classic"], {"used"}),
        (["Empty", "CompletingRebalance"], [], {"simple", "used"}),
        (["Stable"], [], set()),
        ([], ["CLASSIC"], {"simple", "used"}),
        (["Empty"], ["consumer"], set()),
    ],
)
async def test_groups_are_listed_by_state_and_type_in_any_case(
    groups: ServedGroups, states: list[str], types: list[str], names: set[str]
) -> None:
    groups.commit(5, group="simple")
    await groups.joined(group="used")
    answer = await groups.told(ApiKey.LIST_GROUPS, 5, states_filter=states, types_filter=types)
    assert {one.group_id for one in answer.groups} == names


async def test_operations_are_returned_only_for_known_groups_and_when_asked_for(
    groups: ServedGroups,
) -> None:
    groups.commit(5)
    for is_asked, operations in ((True, ALL_GROUP_OPERATIONS), (False, NOT_ASKED)):
        answer = await groups.told(
            ApiKey.DESCRIBE_GROUPS,
            6,
            groups=["g", "none"],
            include_authorized_operations=is_asked,
        )
        there, missing = answer.groups
        assert (there.error_code, there.authorized_operations) == (E.NONE, operations)
        assert missing.error_code == E.GROUP_ID_NOT_FOUND
        assert missing.authorized_operations == NOT_ASKED


async def test_a_group_that_is_named_twice_is_deleted_and_answered_once(
    groups: ServedGroups,
) -> None:
    groups.commit(5)
    answer = await groups.told(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "none", "g"])
    assert [(one.group_id, one.error_code) for one in answer.results] == [
        ("g", E.NONE),
        ("none", E.GROUP_ID_NOT_FOUND),
    ]
    assert await groups.committed() == (0, -1)
