"""Requests to other controllers over real sockets: one end for each, whatever the peer does."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
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
    FetchRequest,
    FetchResponse,
    Node,
    Request,
    Response,
    Standing,
    VoteRequest,
    VoteResponse,
)
from metadata_topic.raft.voters import ReplicaKey
from tests.support.brokers.process import free_ports
from tests.support.quorum.listener import ToldReplica, asking, listening
from tests.support.worlds.waiting import until

ME = ReplicaKey(9, b"\7" * 16)
VOTE = VoteRequest(4, ME, ANY_REPLICA, 2, 100, pre_vote=False)
PRE_VOTE = VoteRequest(3, ME, ANY_REPLICA, 2, 100, pre_vote=True)
FETCH = FetchRequest(ME, 3, 100, 2, high_watermark=90)
STANDING = Standing(3, 1, Node(1, "somewhere", 9093))
GRANTED = VoteResponse(ErrorCode.NONE, STANDING, granted=True)

ALL = {ApiKey.VOTE: (0, 2), ApiKey.FETCH: (4, 18)}
Serve = Callable[[int, int, int], bytes | None]
"""Makes the frame that answers (api key, version, correlation id); None: silence."""


def granted(api_key: int, version: int, correlation_id: int) -> bytes:
    codec = response(ApiKey.VOTE)
    body = codec.encode(write_answer(GRANTED, version), version)
    return framed(struct.pack(">i", correlation_id) + b"\0" + body)


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def handshake(apis: dict[ApiKey, tuple[int, int]], correlation_id: int, error: int = 0) -> bytes:
    codec = response(ApiKey.API_VERSIONS)
    keys = [
        codec.cls.ApiKeys(api_key=int(key), min_version=low, max_version=high)
        for key, (low, high) in apis.items()
    ]
    body = codec.encode(codec.cls(error_code=error, api_keys=keys), 3)
    return framed(struct.pack(">i", correlation_id) + body)


@asynccontextmanager
async def scripted(
    serve: Serve, apis: dict[ApiKey, tuple[int, int]] | None = None, handshake_error: int = 0
) -> AsyncIterator[tuple[int, list[int]]]:
    """A peer that answers by script; yields its port and the versions of requests."""
    versions: list[int] = []
    writers: list[asyncio.StreamWriter] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                head = struct.unpack_from(">hhi", await reader.readexactly(size))
                api_key, version, correlation_id = head
                if api_key == ApiKey.API_VERSIONS:
                    named = ALL if apis is None else apis
                    writer.write(handshake(named, correlation_id, handshake_error))
                    continue
                versions.append(version)
                answer = serve(api_key, version, correlation_id)
                if answer == b"":
                    break
                if answer is not None:
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass
        writer.transport.abort()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], versions
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


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


async def test_a_silent_peer_costs_its_own_requests_their_time_alone() -> None:
    replica = ToldReplica()
    replica.answer = lambda _: GRANTED
    async with (
        scripted(lambda *_: None) as (silent, _),
        listening(replica) as port,
        asking() as asker,
    ):
        waiting = asker.start(silent, VOTE, timeout_ms=20_000)
        for _ in range(20):
            assert await asker.ask(port, VOTE) == GRANTED
        assert not waiting.done()
        assert await ended(asker.start(silent, VOTE, timeout_ms=1)) is None
        assert await ended(waiting) is None  # the connection went with it


async def test_after_a_broken_connection_the_next_request_opens_a_new_one() -> None:
    answers: list[bytes | None] = [b""]

    def serve(api_key: int, version: int, correlation_id: int) -> bytes | None:
        return answers.pop() if answers else granted(api_key, version, correlation_id)

    async with scripted(serve) as (port, versions), asking() as asker:
        assert await ended(asker.start(port, VOTE)) is None
        assert await asker.ask(port, VOTE) == GRANTED
        assert versions == [2, 2]


async def test_nobody_listens() -> None:
    (port,) = free_ports(1)
    async with asking() as asker:
        assert await ended(asker.start(port, VOTE)) is None
        assert await ended(asker.start(port, VOTE, host="name.invalid")) is None


async def test_a_name_is_looked_up() -> None:
    replica = ToldReplica()
    replica.answer = lambda _: GRANTED
    async with listening(replica) as port, asking() as asker:
        assert await ended(asker.start(port, VOTE, host="localhost")) == GRANTED


@pytest.mark.parametrize("highest", [0, 1])
async def test_a_pre_vote_is_not_sent_to_who_would_take_it_for_a_vote(highest: int) -> None:
    apis = {ApiKey.VOTE: (0, highest)}
    old = VoteResponse(ErrorCode.NONE, Standing(3), granted=True)

    def serve(api_key: int, version: int, correlation_id: int) -> bytes | None:
        body = response(ApiKey.VOTE).encode(write_answer(old, version), version)
        return framed(struct.pack(">i", correlation_id) + b"\0" + body)

    async with scripted(serve, apis) as (port, versions), asking() as asker:
        answer = await asker.ask(port, PRE_VOTE)
        assert answer == VoteResponse(ErrorCode.UNSUPPORTED_VERSION, Standing(PRE_VOTE.epoch))
        assert versions == []
        assert await asker.ask(port, VOTE) == old
        assert versions == [highest]


@pytest.mark.parametrize(
    ("apis", "error"),
    [({ApiKey.VOTE: (3, 4)}, 0), ({ApiKey.FETCH: (4, 18)}, 0), ({}, 0), (ALL, 35)],
)
async def test_a_peer_that_does_not_serve_it(
    apis: dict[ApiKey, tuple[int, int]], error: int
) -> None:
    async with scripted(granted, apis, error) as (port, versions), asking() as asker:
        assert await ended(asker.start(port, VOTE)) is None
        assert versions == []


def _of_another(_: int, version: int, correlation_id: int) -> bytes:
    return granted(ApiKey.VOTE, version, correlation_id + 1)


def _huge(*_: int) -> bytes:
    return struct.pack(">i", 2**31 - 1)


def _negative(*_: int) -> bytes:
    return struct.pack(">i", -1)


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


@pytest.mark.parametrize(
    "serve", [_of_another, _huge, _negative, _garbage, _nothing, _two_partitions]
)
async def test_what_is_no_answer_to_the_request_is_none(serve: Serve) -> None:
    async with scripted(serve) as (port, _), asking() as asker:
        assert await ended(asker.start(port, VOTE)) is None


async def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    def serve(api_key: int, version: int, correlation_id: int) -> bytes:
        return granted(api_key, version, correlation_id) * 2

    async with scripted(serve) as (port, versions), asking() as asker:
        assert await asker.ask(port, VOTE) == GRANTED
        answers = [await ended(asker.start(port, VOTE)) for _ in range(3)]
        assert GRANTED in answers
        assert len(versions) >= 2


async def test_an_answer_in_single_bytes_with_more_behind_it() -> None:
    frame = granted(ApiKey.VOTE, 2, 1)
    longer = framed(frame[4:] + b"surplus")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
        for byte in handshake(ALL, 0) + longer:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()  # until the asker closes
        writer.transport.abort()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with asking() as asker:
        assert await asker.ask(server.sockets[0].getsockname()[1], VOTE) == GRANTED
    async with asyncio.timeout(20):
        await gone.wait()
    server.close()


async def test_closing_ends_every_request_and_takes_no_more() -> None:
    async with scripted(lambda *_: None) as (port, versions), asking() as asker:
        requests: Sequence[Request] = [VOTE, FETCH, PRE_VOTE]
        waiting = [asker.start(port, one) for one in requests]
        await until(lambda: len(versions) == 3)
        waiting.append(asker.start(port + 1, VOTE))
        asker.peers.close()
        waiting.append(asker.start(port, VOTE))
        assert [await ended(one) for one in waiting] == [None] * 5


async def test_an_idle_connection_is_closed_and_opened_again_when_needed() -> None:
    async with scripted(granted) as (port, versions), asking() as asker:
        asker.peers._settings = replace(asker.peers._settings, idle_ms_max=0)
        for _ in range(2):
            assert await asker.ask(port, VOTE) == GRANTED
            (link,) = asker.peers._links.values()
            await until(lambda link=link: not link.is_in_use)  # type: ignore[misc]
        assert versions == [2, 2]


async def test_a_request_that_cannot_be_encoded_ends_alone() -> None:
    replica = ToldReplica()
    replica.answer = lambda _: GRANTED
    async with listening(replica) as port, asking() as asker:
        absurd = VoteRequest(2**31, ME, ANY_REPLICA, 2, 100, pre_vote=False)
        assert await ended(asker.start(port, absurd)) is None
        assert await ended(asker.ask(port, VOTE)) == GRANTED
    assert replica.requests == [VOTE]
