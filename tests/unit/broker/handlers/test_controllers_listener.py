"""The controllers' listener answers as Kafka's, over a real socket and byte by byte."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.handlers.api_versions import Features
from broker.handlers.controllers.parts import ControllerParts
from broker.handlers.handler_table import APIS
from broker.network.registry import DecodedHandler, RequestContext
from broker.process.controllers_listener import build_controller_handlers
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.framing import read_request_header
from kafka_protocol.wire.schema import Versions
from metadata_topic.quorum.view import ControllerNode, QuorumView, ReplicaProgress
from metadata_topic.quorum.wire.peers import call_of
from metadata_topic.quorum.wire.rpc import WireIdentity
from metadata_topic.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Node,
    SnapshotId,
    Standing,
)
from metadata_topic.raft.voters import ReplicaKey, VoterEndpoint
from tests.support.quorum.listener import ToldReplica, listening
from tests.support.samples.protocol_golden import controller_frames
from tests.support.worlds.network import Client, frame
from tests.support.worlds.waiting import until

FRAMES = controller_frames()
DESCRIBED = [
    frame
    for frame in FRAMES
    if frame["api_key"] in (ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CLUSTER)
]
CLOSED = [frame for frame in FRAMES if frame["response_hex"] is None]
NODES = tuple(
    ControllerNode(number, (VoterEndpoint("CONTROLLER", "127.0.0.1", 24100 + number),))
    for number in (1, 2, 3)
)


def parts_of(replica: ToldReplica) -> ControllerParts:
    identity = WireIdentity("tidemarkPeerClusterId0")
    return ControllerParts(identity, replica, lambda: Features({}, {}, -1))


def view_of(answer: Any, *, is_leader: bool) -> QuorumView:
    """The view that Kafka's answer shows."""
    view = QuorumView(epoch=2, leader_id=1, is_leader=is_leader, nodes=NODES)
    if not is_leader or not hasattr(answer, "nodes"):
        return view
    (partition,) = answer.topics[0].partitions
    shown = [
        tuple(
            ReplicaProgress(
                ReplicaKey(one.replica_id, one.replica_directory_id),
                one.log_end_offset,
                one.last_fetch_timestamp,
                one.last_caught_up_timestamp,
            )
            for one in replicas
        )
        for replicas in (partition.current_voters, partition.observers)
    ]
    return replace(
        view, high_watermark=partition.high_watermark, voters=shown[0], observers=shown[1]
    )


@pytest.mark.parametrize(
    "recorded", DESCRIBED, ids=lambda f: f"{f['name']} {f['version']} by the {f['asked']}"
)
def test_a_quorum_is_described_in_kafkas_bytes(recorded: dict[str, Any]) -> None:
    asked, answered = (bytes.fromhex(recorded[key]) for key in ("request_hex", "response_hex"))
    api_key, version = ApiKey(recorded["api_key"]), recorded["version"]
    body, _ = request(api_key).decode(asked, version, read_request_header(asked).body_offset)
    start = 4 + header_versions(api_key, version)[1]
    expected, _ = response(api_key).decode(answered, version, start)
    replica = ToldReplica()
    is_leader = recorded["asked"] == "leader" and recorded["name"] == "describe"
    replica.view = view_of(expected, is_leader=is_leader)
    handler = build_controller_handlers(parts_of(replica)).get(api_key)
    assert isinstance(handler, DecodedHandler)

    context = RequestContext(api_key, version, 7, "", "CONTROLLER", ("127.0.0.1", 1), 0)
    answer = handler.handle(context, body)

    assert response(api_key).encode(answer, version) == answered[start:]


async def test_apis_for_data_close_the_connection_as_kafkas_does() -> None:
    async with listening(ToldReplica()) as port:
        assert {recorded["name"] for recorded in CLOSED} == {"produce", "metadata", "list offsets"}
        for recorded in CLOSED:
            client = await connect(port)
            content = bytes.fromhex(recorded["request_hex"])
            client.send(len(content).to_bytes(4, "big") + content)
            assert await client.is_closed()
            client.close()


def test_what_is_announced_is_in_kafkas_list_with_the_same_versions() -> None:
    recorded = next(f for f in FRAMES if f["name"] == "versions" and f["version"] == 4)
    answer, _ = response(ApiKey.API_VERSIONS).decode(bytes.fromhex(recorded["response_hex"]), 4, 4)
    kafkas = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    ours = {
        int(handler.api_key): (handler.versions.first, handler.versions.last)
        for handler in build_controller_handlers(parts_of(ToldReplica()))
    }
    assert ours.items() <= kafkas.items()
    assert set(ours) == {1, 18, 29, 30, 31, 52, 53, 54, 55, 57, 59, 60, 80, 81, 82}


def test_no_listener_of_brokers_serves_a_vote() -> None:
    served = {module.__name__.rpartition(".")[2] for module in APIS}  # type: ignore[attr-defined]
    assert not served & {"vote", "quorum_requests"}


async def connect(port: int) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    return Client(reader, writer)


def fetch_frame(**fields: Any) -> bytes:
    cls = request(ApiKey.FETCH).cls
    partition = cls.Topics.Partitions(
        partition=0, current_leader_epoch=3, fetch_offset=5, last_fetched_epoch=1
    )
    topic = cls.Topics(topic_id=bytes(15) + b"\1", partitions=[partition])
    body = cls(**({"max_wait_ms": 100, "topics": [topic], "cluster_id": "cluster"} | fields))
    content = b"\0" + request(ApiKey.FETCH).encode(body, 18)
    return frame(content, api_key=ApiKey.FETCH, version=18)


async def test_a_parked_fetch_is_answered_when_the_replica_does() -> None:
    replica = ToldReplica()
    async with listening(replica) as port:
        client = await connect(port)
        client.send(fetch_frame())
        await until(lambda: len(replica.parked) == 1)
        (asked,) = replica.requests
        assert isinstance(asked, FetchRequest)
        assert (asked.epoch, asked.offset, asked.max_wait_ms) == (3, 5, 100)
        answer = FetchResponse(
            ErrorCode.NONE, Standing(3, 1, Node(1, "h", 9)), 5, 0, data=b"records"
        )
        replica.parked[0](answer)
        _, body = await client.answer()
        decoded, _ = response(ApiKey.FETCH).decode(body, 18, 1)
        (partition,) = decoded.responses[0].partitions
        assert bytes(partition.records) == b"records"
        assert decoded.node_endpoints[0].port == 9
        client.close()


async def test_a_fetch_that_waits_does_not_delay_other_requests_of_the_peer() -> None:
    replica = ToldReplica()
    async with listening(replica) as port:
        client = await connect(port)
        client.send(fetch_frame() + fetch_frame(max_wait_ms=7))
        await until(lambda: len(replica.parked) == 2)
        for park in replica.parked:
            park(FetchResponse(ErrorCode.NONE, Standing(3)))
        await client.answer()
        await client.answer()
        client.close()


async def test_an_answer_for_a_connection_that_is_gone_harms_nobody() -> None:
    replica = ToldReplica()
    async with listening(replica) as port:
        client = await connect(port)
        client.send(fetch_frame())
        await until(lambda: len(replica.parked) == 1)
        client.writer.transport.abort()
        second = await connect(port)
        second.send(frame(api_key=ApiKey.API_VERSIONS, version=0))
        await second.answer()
        replica.parked[0](FetchResponse(ErrorCode.NONE, Standing(3)))
        second.send(fetch_frame(cluster_id="another"))
        _, body = await second.answer()
        assert response(ApiKey.FETCH).decode(body, 18, 1)[0].error_code == 104
        assert len(replica.requests) == 1
        second.close()


async def test_chunks_that_nobody_reads_yet_are_asked_for_one_at_a_time() -> None:
    replica = ToldReplica()
    async with listening(replica) as port:
        client = await connect(port)
        one = ReplicaKey(7, bytes(16))
        snapshot_id = SnapshotId(10, 1)
        identity = WireIdentity("cluster", "CONTROLLER")
        for number in range(5):
            asked = FetchSnapshotRequest(one, 3, snapshot_id, number, 1_000)
            call = call_of(asked, identity, lambda _: None, 0)
            client.writer.write(call.frame(Versions(1, 1), number, b"x"))
        for number in range(5):
            await until(lambda: len(replica.parked) == 1)
            assert [request.position for request in replica.requests] == list(range(number + 1))
            answer = FetchSnapshotResponse(
                ErrorCode.NONE, Standing(3, 1), snapshot_id, 5, number, b"c"
            )
            replica.parked.pop()(answer)
            await client.answer()
        client.close()
