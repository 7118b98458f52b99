"""Questions about groups continue while a coordinator moves, and end where it refuses."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafka_client.blocking import BlockingClient, ClusterError
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, response
from tests.support.kafka_client.node import Node, framed, serving
from tidemark.cluster.groups import ACTIVE, Groups, Listed, Member

APIS = {
    ApiKey.METADATA: (12, 12),
    ApiKey.FIND_COORDINATOR: (4, 4),
    ApiKey.LIST_GROUPS: (5, 5),
    ApiKey.DESCRIBE_GROUPS: (6, 6),
    ApiKey.OFFSET_COMMIT: (9, 9),
    ApiKey.DELETE_GROUPS: (2, 2),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
}
FLEXIBLE_HEADER = b"\0"
READ = TopicPartition("orders", 0)


def encoded(key: int, version: int, number: int, **fields: Any) -> bytes:
    codec = response(key)
    body = codec.encode(codec.cls(**fields), version)
    return framed(number.to_bytes(4, "big") + FLEXIBLE_HEADER + body)


async def ask(question: Callable[[Groups], Any], **answers: list[dict[str, Any]]) -> Any:
    """Ask a broker that says these things, by API, one after another."""
    nodes: list[Node] = []

    def serve(key: int, version: int, number: int) -> bytes:
        if key == ApiKey.METADATA:
            brokers = [response(key).cls.Brokers(node_id=1, host="127.0.0.1", port=nodes[0].port)]
            return encoded(key, version, number, brokers=brokers, cluster_id="c", topics=[])
        if key == ApiKey.FIND_COORDINATOR:
            coordinator = response(key).cls.Coordinators(node_id=1, host="", port=0, key="g")
            return encoded(key, version, number, coordinators=[coordinator])
        return encoded(key, version, number, **answers[ApiKey(key).name.lower()].pop(0))

    def blocking() -> Any:
        with BlockingClient(f"127.0.0.1:{nodes[0].port}") as client:
            return question(Groups(client, deadline_s=20))

    async with serving(serve, APIS) as node:
        nodes.append(node)
        return await asyncio.to_thread(blocking)


def described(code: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "groups": [
            response(ApiKey.DESCRIBE_GROUPS).cls.Groups(
                **{
                    "error_code": code, "group_id": "g", "group_state": "Stable",
                    "protocol_type": "consumer", "protocol_data": "range", **fields,
                }
            )
        ]
    }  # fmt: skip


def committed(code: int) -> dict[str, Any]:
    cls = response(ApiKey.OFFSET_COMMIT).cls
    partition = cls.Topics.Partitions(partition_index=0, error_code=code)
    return {"topics": [cls.Topics(name="orders", partitions=[partition])]}


async def test_a_coordinator_that_reads_its_log_is_asked_again() -> None:
    group = response(ApiKey.LIST_GROUPS).cls.Groups(
        group_id="g", group_type="classic", protocol_type="", group_state="Empty"
    )
    loading = {"error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups": []}
    found = await ask(Groups.all, list_groups=[loading, {"groups": [group]}])
    assert found == [Listed("g", "classic", "", "Empty")]


async def test_members_say_what_they_read() -> None:
    codec, cls = message("ConsumerProtocolAssignment"), response(ApiKey.DESCRIBE_GROUPS).cls
    assigned = codec.cls.AssignedPartitions(topic="orders", partitions=[0])
    known = b"\0\3" + codec.encode(codec.cls(assigned_partitions=[assigned]), 3)
    members = [
        cls.Groups.Members(
            member_id=f"m{number}", client_id="app", client_host="/h",
            member_metadata=b"", member_assignment=assignment,
        )
        for number, assignment in enumerate((known, b"", b"\0\0nonsense"))
    ]  # fmt: skip
    moved = described(ErrorCode.NOT_COORDINATOR)
    found = await ask(
        lambda groups: groups.describe("g"), describe_groups=[moved, described(members=members)]
    )
    assert [one.assigned for one in found.members] == [frozenset([READ]), frozenset(), None]
    assert found.members[0] == Member("m0", None, "app", "/h", frozenset([READ]))
    assert (found.state, found.strategy) == ("Stable", "range")


async def test_of_no_consumer_nobody_knows_what_it_reads() -> None:
    member = response(ApiKey.DESCRIBE_GROUPS).cls.Groups.Members(
        member_id="m", client_id="", client_host="", member_metadata=b"", member_assignment=b"x"
    )
    answer = described(protocol_type="connect", members=[member])
    found = await ask(lambda groups: groups.describe("g"), describe_groups=[answer])
    assert found.members[0].assigned is None


NOT_CLASSIC = described(ErrorCode.GROUP_ID_NOT_FOUND)


def listed(kind: str) -> dict[str, Any]:
    cls = response(ApiKey.LIST_GROUPS).cls.Groups
    return {"groups": [cls(group_id="g", group_type=kind, protocol_type="")]}


async def test_a_group_of_kip_848_is_described_by_its_coordinator() -> None:
    cls = response(ApiKey.CONSUMER_GROUP_DESCRIBE).cls.Groups
    given = cls.Members.Assignment(
        topic_partitions=[
            cls.Members.Assignment.TopicPartitions(
                topic_id=bytes(16), topic_name="orders", partitions=[0]
            )
        ]
    )
    member = cls.Members(
        member_id="m", member_epoch=1, client_id="app", client_host="/h",
        subscribed_topic_names=["orders"], assignment=given,
        target_assignment=cls.Members.TargetAssignment(topic_partitions=[]),
    )  # fmt: skip
    group = cls(
        error_code=0, group_id="g", group_state="Reconciling", group_epoch=1, assignment_epoch=1,
        assignor_name="uniform", members=[member],
    )  # fmt: skip
    moved = cls(**{one: getattr(group, one) for one in ("group_id", "group_epoch")} | {
        "error_code": ErrorCode.NOT_COORDINATOR, "group_state": "", "assignment_epoch": 0,
        "assignor_name": "", "members": [],
    })  # fmt: skip
    found = await ask(
        lambda groups: groups.describe("g"),
        describe_groups=[NOT_CLASSIC],
        list_groups=[listed("consumer")],
        consumer_group_describe=[{"groups": [moved]}, {"groups": [group]}],
    )
    assert found.members == (Member("m", None, "app", "/h", frozenset([READ])),)
    assert (found.state, found.strategy) == ("Reconciling", "uniform")
    assert found.state in ACTIVE


async def test_a_group_of_another_type_names_the_tool_that_describes_it() -> None:
    with pytest.raises(ClusterError, match="group g is of type share: Kafka's kafka-share-groups"):
        await ask(
            lambda groups: groups.describe("g"),
            describe_groups=[NOT_CLASSIC],
            list_groups=[listed("share")],
        )


async def test_a_group_that_is_not_there_gets_the_nearest_name() -> None:
    group = response(ApiKey.LIST_GROUPS).cls.Groups(group_id="gg", protocol_type="")
    with pytest.raises(ClusterError, match=r"there is no group 'g'; did you mean gg\?"):
        await ask(
            lambda groups: groups.describe("g"),
            describe_groups=[described(ErrorCode.GROUP_ID_NOT_FOUND)],
            list_groups=[{"groups": [group]}],
        )


async def test_a_consumer_that_came_meanwhile_keeps_its_offsets() -> None:
    with pytest.raises(ClusterError, match="'g' is inactive, but the current state"):
        await ask(
            lambda groups: groups.commit("g", {READ: 3}),
            offset_commit=[committed(ErrorCode.UNKNOWN_MEMBER_ID)],
        )


async def test_a_refused_offset_is_named() -> None:
    moving = committed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused = committed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answers = [moving, refused]
    found = await ask(lambda groups: groups.commit("g", {READ: 3}), offset_commit=answers)
    assert found == {READ: "the offset of orders-0 of group g: UNKNOWN_TOPIC_OR_PARTITION"}


async def test_a_group_with_members_is_not_deleted() -> None:
    result = response(ApiKey.DELETE_GROUPS).cls.Results(
        group_id="g", error_code=ErrorCode.NON_EMPTY_GROUP
    )
    with pytest.raises(ClusterError, match="group g has members; stop its consumers"):
        await ask(lambda groups: groups.delete("g"), delete_groups=[{"results": [result]}])
