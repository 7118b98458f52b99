"""Requests to other controllers over real sockets: one end for each, whatever the peer does."""

import asyncio
import struct
from collections.abc import Awaitable, Sequence
from dataclasses import replace

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey, response_header_version
from kafka_protocol.wire.codec import response
from metadata_topic.quorum.log.batches import value_batch
from metadata_topic.quorum.log.fetched import checked_prefix
from metadata_topic.quorum.wire.responses import write_answer
from metadata_topic.raft.messages import (
    ANY_REPLICA,
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    Node,
    RemoveVoterRequest,
    Request,
    Response,
    Standing,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
    VoterResponse,
)
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint
from tests.support.brokers.process import free_ports
from tests.support.kafka_client.node import Serve, framed, serving
from tests.support.quorum.listener import FEATURES, ToldReplica, asking, listening
from tests.support.worlds.waiting import until

ME = ReplicaKey(9, b"\7" * 16)
VOTE = VoteRequest(4, ME, ANY_REPLICA, 2, 100, pre_vote=False)
PRE_VOTE = VoteRequest(3, ME, ANY_REPLICA, 2, 100, pre_vote=True)
FETCH = FetchRequest(ME, 3, 100, 2, high_watermark=90)
STANDING = Standing(3, 1, Node(1, "somewhere", 9093))
GRANTED = VoteResponse(ErrorCode.NONE, STANDING, granted=True)

ALL = {ApiKey.VOTE: (0, 2), ApiKey.FETCH: (4, 18)}


def granted(api_key: int, version: int, correlation_id: int) -> bytes:
    codec = response(ApiKey.VOTE)
    body = codec.encode(write_answer(GRANTED, version), version)
    return framed(struct.pack(">i", correlation_id) + b"\0" + body)


async def ended(waiting: Awaitable[Response | None]) -> Response | None:
    async with asyncio.timeout(20):
        return await waiting


async def test_a_request_arrives_as_it_was_and_its_answer_too() -> None:
    replica = ToldReplica()
    batches = b"".join(
        bytes(value_batch([b"x" * 50], base_offset=offset, epoch=3, timestamp_ms=1))
        for offset in range(100, 110)
    )
    checked = checked_prefix(batches)
    records = FetchResponse(ErrorCode.NONE, STANDING, 95, 10, None, None, checked.batches, batches)
    replica.answer = lambda asked: GRANTED if isinstance(asked, VoteRequest) else records
    async with listening(replica) as port, asking() as asker:
        assert await asker.ask(port, PRE_VOTE) == GRANTED
        assert await asker.ask(port, FETCH) == records
    assert replica.requests == [PRE_VOTE, FETCH]


async def test_requests_about_voters_arrive_as_they_were_and_their_answers_too() -> None:
    replica = ToldReplica()
    replica.answer = lambda _: VoterResponse(ErrorCode.DUPLICATE_VOTER, STANDING, "is one")
    voter = Voter(ME, (VoterEndpoint("CONTROLLER", "h", 9093), VoterEndpoint("SECOND", "::1", 1)))
    add = AddVoterRequest(3, voter, waits_for_commit=False)
    remove, update = (
        RemoveVoterRequest(3, ME),
        UpdateVoterRequest(2, replace(voter, kraft_versions=(1, 2))),
    )
    async with listening(replica) as port, asking() as asker:
        refused = VoterResponse(ErrorCode.DUPLICATE_VOTER, Standing(3), "is one")
        assert await asker.ask(port, add) == refused
        assert await asker.ask(port, remove) == refused
        told = VoterResponse(ErrorCode.DUPLICATE_VOTER, STANDING)
        assert await asker.ask(port, update) == told, "who leads, and where"
        able = await asker.ask(port, ApiVersionsRequest(ME))
        assert able == ApiVersionsResponse(ErrorCode.NONE, FEATURES.supported["kraft.version"])
    assert replica.requests == [add, remove, update]


async def test_a_long_answer_is_checked_by_a_thread_and_is_the_same() -> None:
    replica = ToldReplica()
    batches = b"".join(
        bytes(value_batch([b"x" * 900], base_offset=offset, epoch=3, timestamp_ms=1))
        for offset in range(100, 1_100)
    )
    damaged = batches[:-1] + b"\xff"
    replica.answer = lambda _: FetchResponse(ErrorCode.NONE, STANDING, data=damaged)
    async with listening(replica) as port, asking() as asker:
        answer = await asker.ask(port, FETCH)
    assert isinstance(answer, FetchResponse)
    assert len(answer.batches) == 999
    assert batches.startswith(answer.data)
    assert answer.fault is not None
    assert "checksum mismatch in the batch of offset 1099" in answer.fault


async def test_requests_share_a_connection_and_are_answered_in_order() -> None:
    replica = ToldReplica()
    replica.answer = lambda asked: (
        VoteResponse(ErrorCode.NONE, Standing(asked.epoch)) if asked.epoch % 3 else None
    )
    async with listening(replica) as port, asking() as asker:
        asked = [VoteRequest(n, ME, ANY_REPLICA, 0, 0, pre_vote=False) for n in range(1, 10)]
        waiting = [asker.start(port, one) for one in asked]
        await until(lambda: len(replica.parked) == 3)
        assert [one.done() for one in waiting[2:]] == [False] * 7
        for number, respond in enumerate(replica.parked, 1):
            respond(VoteResponse(ErrorCode.NONE, Standing(3 * number)))
        answers = [await ended(one) for one in waiting]
    assert [one and one.standing.epoch for one in answers] == list(range(1, 10))


async def test_nobody_listens() -> None:
    (port,) = free_ports(1)
    async with asking() as asker:
        assert await ended(asker.start(port, VOTE)) is None
        assert await ended(asker.start(port, VOTE, host="name.invalid")) is None


@pytest.mark.parametrize("highest", [0, 1])
async def test_a_pre_vote_is_not_sent_to_who_would_take_it_for_a_vote(highest: int) -> None:
    apis = {ApiKey.VOTE: (0, highest)}
    old = VoteResponse(ErrorCode.NONE, Standing(3), granted=True)

    def serve(api_key: int, version: int, correlation_id: int) -> bytes | None:
        body = response(ApiKey.VOTE).encode(write_answer(old, version), version)
        return framed(struct.pack(">i", correlation_id) + b"\0" + body)

    async with serving(serve, apis) as node, asking() as asker:
        answer = await asker.ask(node.port, PRE_VOTE)
        assert answer == VoteResponse(ErrorCode.UNSUPPORTED_VERSION, Standing(PRE_VOTE.epoch))
        assert node.versions == []
        assert await asker.ask(node.port, VOTE) == old
        assert node.versions == [highest]


@pytest.mark.parametrize(
    ("apis", "error"),
    [({ApiKey.VOTE: (3, 4)}, 0), ({ApiKey.FETCH: (4, 18)}, 0), ({}, 0), (ALL, 35)],
)
async def test_a_peer_that_does_not_serve_it(
    apis: dict[ApiKey, tuple[int, int]], error: int
) -> None:
    async with serving(granted, apis, error) as node, asking() as asker:
        assert await ended(asker.start(node.port, VOTE)) is None
        assert node.versions == []


def _garbage(_: int, __: int, correlation_id: int) -> bytes:
    return framed(struct.pack(">i", correlation_id) + b"\xff" * 40)


def _nothing(_: int, __: int, correlation_id: int) -> bytes:
    return framed(struct.pack(">i", correlation_id))


def _two_partitions(_: int, version: int, correlation_id: int) -> bytes:
    codec = response(ApiKey.VOTE)
    body = write_answer(GRANTED, version)
    body.topics[0].partitions *= 2
    head = struct.pack(">i", correlation_id) + b"\0"
    assert response_header_version(ApiKey.VOTE, version) == 1
    return framed(head + codec.encode(body, version))


@pytest.mark.parametrize("serve", [_garbage, _nothing, _two_partitions])
async def test_what_is_no_answer_to_the_request_is_none(serve: Serve) -> None:
    async with serving(serve, ALL) as node, asking() as asker:
        assert await ended(asker.start(node.port, VOTE)) is None


async def test_closing_ends_every_request_and_takes_no_more() -> None:
    async with serving(lambda *_: None, ALL) as node, asking() as asker:
        port = node.port
        requests: Sequence[Request] = [VOTE, FETCH, PRE_VOTE]
        waiting = [asker.start(port, one) for one in requests]
        await until(lambda: len(node.versions) == 3)
        waiting.append(asker.start(port + 1, VOTE))
        asker.peers.close()
        waiting.append(asker.start(port, VOTE))
        assert [await ended(one) for one in waiting] == [None] * 5


async def test_a_request_that_cannot_be_encoded_ends_alone() -> None:
    replica = ToldReplica()
    replica.answer = lambda _: GRANTED
    async with listening(replica) as port, asking() as asker:
        absurd = VoteRequest(2**31, ME, ANY_REPLICA, 2, 100, pre_vote=False)
        assert await ended(asker.start(port, absurd)) is None
        assert await ended(asker.ask(port, VOTE)) == GRANTED
    assert replica.requests == [VOTE]


async def test_an_unreachable_peer_is_logged_once_and_again_when_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "metadata_topic.quorum.wire.peers")
    answers = [b"", b"", None, None]

    def serve(*asked: int) -> bytes:
        answer = answers.pop(0)
        return granted(*asked) if answer is None else answer

    async with serving(serve, ALL) as node, asking() as asker:
        ends = [await ended(asker.start(node.port, VOTE)) for _ in range(4)]
    assert ends == [None, None, GRANTED, GRANTED]
    said = [record.message.partition(":")[0] for record in caplog.records]
    assert said == ["a controller cannot be asked", "a controller answers again"]
