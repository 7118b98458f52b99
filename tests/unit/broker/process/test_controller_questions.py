"""What a start asks a controller: each answer counts, with the second one or without it."""

import asyncio

import pytest

from broker.node.identity_check import LeaderView, SeenReplica
from broker.process.controller_questions import ControllerAnswer, ControllerQuestions
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from metadata_topic.raft.messages import Node
from metadata_topic.raft.voters import ReplicaKey
from runtime.ports import system_ports
from tests.support.kafka_client.node import framed, serving

APIS = {ApiKey.DESCRIBE_CLUSTER: (0, 2), ApiKey.DESCRIBE_QUORUM: (0, 2)}
CONTROLLERS = (Node(1, "h1", 9093), Node(2, "h2", 9093))
FIRST, SECOND, OBSERVER = b"1" * 16, b"2" * 16, b"o" * 16


def cluster(error: ErrorCode) -> bytes:
    cls = response(ApiKey.DESCRIBE_CLUSTER).cls
    return response(ApiKey.DESCRIBE_CLUSTER).encode(
        cls(
            error_code=int(error),
            endpoint_type=2,
            cluster_id="c",
            brokers=[
                cls.Brokers(broker_id=one.id, host=one.host, port=one.port) for one in CONTROLLERS
            ],
        ),
        1,
    )


def quorum(error: ErrorCode) -> bytes:
    cls = response(ApiKey.DESCRIBE_QUORUM).cls
    partition = cls.Topics.Partitions
    voters = [
        partition.CurrentVoters(
            replica_id=one, replica_directory_id=key, log_end_offset=9, last_fetch_timestamp=at
        )
        for one, key, at in ((1, FIRST, 1_000), (2, SECOND, 900))
    ]
    observers = [
        partition.Observers(
            replica_id=7, replica_directory_id=OBSERVER, log_end_offset=9, last_fetch_timestamp=800
        )
    ]
    one = partition(
        error_code=int(error),
        leader_id=1,
        leader_epoch=4,
        current_voters=voters,
        observers=observers,
    )
    topic = cls.Topics(topic_name="__cluster_metadata", partitions=[one])
    return response(ApiKey.DESCRIBE_QUORUM).encode(cls(topics=[topic]), 2)


async def asked(
    of_cluster: ErrorCode = ErrorCode.NONE, of_quorum: ErrorCode | None = ErrorCode.NONE
) -> tuple[ControllerAnswer, str]:
    """What is made of the answers, and the address; None: the connection ends in place of one."""

    def serve(key: int, _version: int, number: int) -> bytes:
        if key == ApiKey.DESCRIBE_QUORUM and of_quorum is None:
            return b""
        body = (
            cluster(of_cluster)
            if key == ApiKey.DESCRIBE_CLUSTER
            else quorum(of_quorum or ErrorCode.NONE)
        )
        return framed(number.to_bytes(4, "big") + b"\0" + body)

    ports = system_ports(asyncio.get_running_loop())
    try:
        async with serving(serve, APIS) as node:
            said = await ControllerQuestions(11, ports, 10_000).ask(Node(1, *node.address))
            return said, f"127.0.0.1:{node.port}"
    finally:
        ports.executors.shutdown()


async def test_a_leader_says_who_votes_and_where_other_controllers_are() -> None:
    said, address = await asked()
    replicas = (
        SeenReplica(ReplicaKey(1, FIRST), True, 1_000),
        SeenReplica(ReplicaKey(2, SECOND), True, 900),
        SeenReplica(ReplicaKey(7, OBSERVER), False, 800),
    )
    assert said == ControllerAnswer("c", LeaderView(1, address, 4, 1_000, replicas), CONTROLLERS)


@pytest.mark.parametrize("of_quorum", [None, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_one_that_does_not_lead_says_its_cluster_and_others_all_the_same(
    of_quorum: ErrorCode | None,
) -> None:
    said, _ = await asked(of_quorum=of_quorum)
    assert said == ControllerAnswer("c", None, CONTROLLERS)


async def test_one_that_does_not_say_its_cluster_says_nothing() -> None:
    said, _ = await asked(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert said == ControllerAnswer()


async def test_one_that_nobody_reaches_says_nothing() -> None:
    ports = system_ports(asyncio.get_running_loop())
    async with serving(lambda *_: b"", APIS) as node:
        gone = Node(1, *node.address)
    try:
        assert await ControllerQuestions(11, ports, 10_000).ask(gone) == ControllerAnswer()
    finally:
        ports.executors.shutdown()
