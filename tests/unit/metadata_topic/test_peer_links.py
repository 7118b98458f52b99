"""Connections to other controllers that end, linger or are used again: no request is lost there."""

import asyncio
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.quorum.wire.peer_calls import CORRELATION_ID_MAX
from metadata_topic.quorum.wire.peer_link import Link, LinkSettings
from metadata_topic.quorum.wire.peers import Peers
from metadata_topic.raft.messages import Node, Response
from runtime.executors import InlinePool, ThreadPool
from tests.support.brokers.process import free_ports
from tests.support.quorum.listener import IDENTITY, asking
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.waiting import PATIENCE_S, until
from tests.unit.metadata_topic.test_peers import (
    ALL,
    FETCH,
    GRANTED,
    VOTE,
    ended,
    framed,
    granted,
    handshake,
    scripted,
)

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


async def request_of(reader: asyncio.StreamReader) -> tuple[int, int, int]:
    """Api key, version and correlation id of the next request."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    key, version, number = struct.unpack_from(">hhi", await reader.readexactly(size))
    return key, version, number


@asynccontextmanager
async def talking(*talks: Talk) -> AsyncIterator[int]:
    """A peer with a talk for each connection, in their order; yields its port."""
    left = list(talks)
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionResetError):
            await left.pop(0)(reader, writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        key, version, number = await request_of(reader)
        if key == ApiKey.API_VERSIONS:
            writer.write(handshake(ALL, number))
        else:
            writer.write(granted(key, version, number))


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


# -- requests that wait for the connection ------------------------------------------------------


@pytest.mark.parametrize("end", ["the peer hangs up", "the first has no answer in time", "closed"])
async def test_requests_that_wait_for_the_connection_end_with_it(end: str) -> None:
    """Without that the core waits for an answer for ever: it asks nobody twice at a time."""
    is_asked, hangs_up = asyncio.Event(), asyncio.Event()

    async def no_versions(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await request_of(reader)
        is_asked.set()
        await hangs_up.wait()

    async with talking(no_versions) as port, asking() as asker:
        in_time = 1 if end == "the first has no answer in time" else 60_000
        waiting = [asker.start(port, VOTE, timeout_ms=60_000) for _ in range(2)]
        await is_asked.wait()
        waiting.append(asker.start(port, FETCH, timeout_ms=in_time))
        if end == "closed":
            asker.peers.close()
        elif end == "the peer hangs up":
            hangs_up.set()
        assert [await ended(one) for one in waiting] == [None] * 3
        hangs_up.set()


async def test_an_answer_that_comes_after_its_time_is_nobodys() -> None:
    late, asked = asyncio.Event(), asyncio.Event()

    async def answers_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(handshake(ALL, (await request_of(reader))[2]))
        key, version, number = await request_of(reader)
        asked.set()
        await late.wait()
        writer.write(granted(key, version, number))

    async with talking(answers_late, answers) as port, asking() as asker:
        told: list[Response | None] = []
        asker.peers.send(Node(-1, "127.0.0.1", port), VOTE, 60_000, told.append)
        await asked.wait()
        (link,) = asker.peers._links.values()
        ((_, call),) = link._asked
        assert call is not None
        link.expired(call, 60_000)
        late.set()
        await until(lambda: told == [None])
        assert await asker.ask(port, VOTE) == GRANTED
        assert told == [None]


# -- one connection after the other -------------------------------------------------------------


async def test_half_an_answer_of_the_last_connection_is_no_part_of_the_next() -> None:
    async def answers_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(handshake(ALL, (await request_of(reader))[2]))
        frame = granted(*await request_of(reader))
        writer.write(frame[: len(frame) // 2])
        await writer.drain()

    async with talking(answers_half, answers) as port, asking() as asker:
        assert await ended(asker.start(port, VOTE)) is None
        assert await asker.ask(port, VOTE) == GRANTED


async def test_each_connection_asks_anew_what_the_peer_knows() -> None:
    """It may be another program by then."""
    apis = {ApiKey.VOTE: (0, 2)}
    served = [granted, lambda *_: b"", granted]

    def serve(*asked: int) -> bytes:
        return served.pop(0)(*asked)

    async with scripted(serve, apis) as (port, versions), asking() as asker:
        assert await asker.ask(port, VOTE) == GRANTED
        assert await ended(asker.start(port, VOTE)) is None
        apis[ApiKey.VOTE] = (3, 4)
        assert await ended(asker.start(port, VOTE)) is None
        assert versions == [2, 2]


async def test_the_loss_of_the_last_connection_is_not_that_of_the_next() -> None:
    async with talking(silent, answers) as port, asking() as asker:
        waiting = asker.start(port, VOTE)
        (link,) = asker.peers._links.values()
        await until(lambda: link._transport is not None)
        link.end("for the test")  # the loop hears of the loss in its next turn
        assert await asker.ask(port, VOTE) == GRANTED
        assert await ended(waiting) is None


async def test_numbers_of_requests_begin_again_after_the_highest() -> None:
    async with talking(answers) as port, asking() as asker:
        assert await asker.ask(port, VOTE) == GRANTED
        (link,) = asker.peers._links.values()
        link._correlation_id = CORRELATION_ID_MAX
        for _ in range(3):
            assert await asker.ask(port, VOTE) == GRANTED
        assert link._correlation_id == 2


async def test_of_many_addresses_those_in_use_are_not_forgotten() -> None:
    async with talking(silent) as port, asking() as asker:
        waiting = asker.start(port, VOTE, timeout_ms=60_000)
        for dead in free_ports(40):
            assert await ended(asker.start(dead, VOTE)) is None
        assert len(asker.peers._links) <= 32
        asker.peers.close()
        assert await ended(waiting) is None


class Addresses(ThreadPool):
    """Looks every name up itself."""

    def __init__(self, *found: str) -> None:
        super().__init__("names", 1)
        self.found = found

    async def run(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return [(0, 0, 0, "", (one, args[1] or 0)) for one in self.found]


async def test_of_a_names_addresses_each_is_tried() -> None:
    async with talking(answers) as port, asking() as asker:
        asker.peers._pool = Addresses("127.0.0.2", "127.0.0.1")
        assert await ended(asker.start(port, VOTE, host="two.addresses")) == GRANTED


# -- time ---------------------------------------------------------------------------------------


async def test_a_connection_is_not_idle_while_a_request_waits() -> None:
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    settings = LinkSettings(identity=IDENTITY, client_id="c", idle_ms_max=1_000)
    first = True

    def serve(api_key: int, version: int, number: int) -> bytes | None:
        nonlocal first
        was_first, first = first, False
        return granted(api_key, version, number) if was_first else None

    class Pools:
        def pool(self, name: str, threads: int) -> InlinePool:
            return InlinePool(name)

    async with scripted(serve) as (port, versions):
        executors: Any = Pools()
        peers = Peers(settings, scheduler, executors)
        told: list[Response | None] = []
        here = Node(-1, "127.0.0.1", port)
        peers.send(here, VOTE, 60_000, told.append)
        await until(lambda: told == [GRANTED])
        scheduler.advance(999)
        peers.send(here, VOTE, 60_000, told.append)
        await until(lambda: versions == [2, 2])
        scheduler.advance(30_000)
        assert told == [GRANTED], "it has its minute"
        scheduler.advance(30_000)
        assert told == [GRANTED, None]
        peers.close()


# -- long answers -------------------------------------------------------------------------------


def unreadable(_: int, __: int, number: int) -> bytes:
    return framed(struct.pack(">i", number) + b"\0" + b"\xff" * 100_000)


async def test_a_long_answer_that_cannot_be_read_ends_its_request() -> None:
    async with scripted(unreadable) as (port, _), asking() as asker:
        assert await ended(asker.start(port, FETCH, timeout_ms=60_000)) is None


async def test_a_long_answer_after_the_end_of_all_threads_ends_its_request() -> None:
    async with scripted(unreadable) as (port, versions), asking() as asker:
        waiting = asker.start(port, FETCH, timeout_ms=60_000)
        asker.peers._pool.shutdown()
        assert await ended(waiting) is None
        assert len(versions) == 1


async def test_a_long_answer_whose_thread_never_came_ends_its_request() -> None:
    """The pool is shut down with answers that wait for a thread."""
    is_busy, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def is_held_up() -> None:
        loop.call_soon_threadsafe(is_busy.set)
        assert may_end.wait(PATIENCE_S)  # not for the loop: that waits for this thread in the end

    async with scripted(unreadable) as (port, _), asking() as asker:
        pool = ThreadPool("one", 1)
        asker.peers._pool = pool
        held_up = pool.submit(is_held_up)
        await is_busy.wait()
        waiting = asker.start(port, FETCH, timeout_ms=60_000)
        await until(lambda: pool.waiting == 1)
        pool.shutdown(wait=False)
        may_end.set()
        assert await ended(waiting) is None
        held_up.result(PATIENCE_S)


def test_a_link_is_not_in_use_before_the_first_request() -> None:
    clock = ManualClock()
    settings = LinkSettings(identity=IDENTITY, client_id="c")
    link = Link(("127.0.0.1", 1), settings, ManualScheduler(clock), InlinePool())
    assert not link.is_in_use
    link.end("nothing to end", quiet=True)
    assert not link.is_in_use
