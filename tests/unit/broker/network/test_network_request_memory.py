"""Large requests of many connections share a bounded memory; real sockets, the clock by hand."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from broker.network.buffers import KEPT_BYTES_MAX, PROGRESS_BYTES
from broker.network.intake import SMALL_FRAME_BYTES
from broker.network.limits import NetworkLimits
from broker.network.registry import OrderedAnswer, RawHandler, RequestContext, own_body
from broker.network.request_memory import SHARES
from broker.network.server import SCRATCH_BYTES, SWEEP_MS
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from tests.support.worlds.network import Client, Harness, Raw, echo, frame, serving
from tests.support.worlds.waiting import until

LARGE = 1_000_000
BOUND = 4 * LARGE
FRAME_MS = 30_000
LIMITS = NetworkLimits(request_bytes_max=LARGE + 100, requests_bytes_max=BOUND)
HALF = LARGE // 2


def large(correlation_id: int = 0, fill: bytes = b".") -> bytes:
    return frame(fill * LARGE, correlation_id=correlation_id)


@asynccontextmanager
async def full(
    raw: Raw | RawHandler = echo, limits: NetworkLimits = LIMITS
) -> AsyncIterator[tuple[Harness, list[Client]]]:
    """A server whose memory is taken by clients of two addresses that send half a request each."""
    async with serving(raw, limits=limits) as harness:
        clients = []
        for n in range(2 * SHARES):
            clients.append(await harness.connect(f"127.0.0.{2 + n % 2}"))
            clients[-1].send(large()[:HALF])
            await until(lambda: _begun(harness) == len(clients))
            harness.advance(1)
        assert harness.server.memory.used_bytes >= BOUND
        yield harness, clients


def _begun(harness: Harness) -> int:
    return sum(one._frame is not None for one in harness.server._connections)


def _waiting(harness: Harness) -> int:
    return sum(one._wants_memory for one in harness.server._connections)


async def test_many_half_sent_frames_stay_within_the_bound_and_others_are_served() -> None:
    async with serving(limits=LIMITS) as harness:
        senders = [await harness.connect("127.0.0.2") for _ in range(60)]
        for each in senders:
            each.send(large()[:HALF])
        await until(lambda: _begun(harness) + _waiting(harness) == len(senders))
        memory, kept = harness.server.memory, 0
        for one in harness.server._connections:
            kept += len(one._head) + (0 if one._frame is None else len(one._frame._buffer))
        assert memory.used_bytes <= BOUND // SHARES + LARGE + 100
        assert kept <= memory.used_bytes + len(senders) * (SCRATCH_BYTES + SMALL_FRAME_BYTES)
        good = await harness.connect()
        for n in range(3):
            good.send(frame(b"small", correlation_id=n))
            assert await good.answer() == (n, b"small")
            good.send(large(n, b"g"))
            assert await good.answer() == (n, b"g" * LARGE), "of another address"
        neighbour = await harness.connect("127.0.0.2")
        neighbour.send(frame(b"small"))
        assert (await neighbour.answer())[1] == b"small"
        for each in senders:
            each.send(large()[HALF:])
        for each in senders:
            assert (await each.answer())[1] == b"." * LARGE
        assert memory.used_bytes == 0


async def test_what_a_waiting_connection_keeps_is_small() -> None:
    async with full() as (harness, _):
        client = await harness.connect()
        client.send(frame(b"first", correlation_id=7) + large())
        assert await client.answer() == (7, b"first")
        await until(lambda: _waiting(harness) == 1)
        (one,) = [one for one in harness.server._connections if one._wants_memory]
        assert len(one._head) <= SCRATCH_BYTES + SMALL_FRAME_BYTES
        assert one._frame is None


async def test_a_request_that_waited_is_served_whole_and_what_is_behind_it_too() -> None:
    async with full() as (harness, clients):
        client = await harness.connect()
        client.send(frame(b"a", correlation_id=1) + large(2) + frame(b"b", correlation_id=3))
        assert await client.answer() == (1, b"a")
        await until(lambda: _waiting(harness) == 1)
        clients[0].send(large()[HALF:])
        assert (await clients[0].answer())[1] == b"." * LARGE
        assert await client.answer() == (2, b"." * LARGE)
        assert await client.answer() == (3, b"b")


@pytest.mark.parametrize("abruptly", [False, True])
async def test_a_connection_that_closes_gives_its_memory_back(abruptly: bool) -> None:
    async with full() as (harness, clients):
        client = await harness.connect()
        client.send(large(5))
        await until(lambda: _waiting(harness) == 1)
        if abruptly:
            clients[1].writer.transport.abort()
        else:
            clients[1].close()
        assert (await client.answer())[0] == 5
        for each in [*clients, client]:
            each.close()
        await until(lambda: not harness.server._connections)
        assert harness.server.memory.used_bytes == 0
        assert harness.server.memory._held == {}


async def test_a_connection_that_is_closed_while_it_waits_leaves_the_line() -> None:
    async with full() as (harness, clients):
        gone, client = await harness.connect(), await harness.connect()
        for each in (gone, client):
            each.send(large(6))
            await until(lambda each=each: _waiting(harness) == 1 + (each is client))
        for one in list(harness.server._connections):
            if one._wants_memory and one.peer.address[1] == _port(gone):
                one.close("as the test wants it")
        assert [len(queue) for queue in harness.server.memory._queues.values()] == [1]
        clients[0].close()
        assert (await client.answer())[0] == 6


def _port(client: Client) -> int:
    sock: socket.socket = client.writer.get_extra_info("socket")
    return int(sock.getsockname()[1])


async def test_a_stop_waits_for_nobody_who_waits_for_memory() -> None:
    async with full() as (harness, _):
        client = await harness.connect()
        client.send(large())
        await until(lambda: _waiting(harness) == 1)
        await harness.server.stop(60_000)
        assert not harness.server._connections
        assert harness.server.memory.used_bytes == 0


async def _all_send_more(harness: Harness, clients: list[Client], sent: int) -> int:
    """Each makes progress, so that its own time begins again; half of that goes by."""
    for each in clients:
        each.send(large()[sent : sent + PROGRESS_BYTES])
    sent += PROGRESS_BYTES
    frames = [one._frame for one in harness.server._connections if one._frame is not None]
    await until(lambda: all(each._got >= sent - 4 for each in frames))
    harness.advance(FRAME_MS // 2)
    return sent


async def test_a_slow_sender_continues_while_nobody_waits() -> None:
    async with full() as (harness, clients):
        sent = HALF
        for _ in range(3):
            sent = await _all_send_more(harness, clients, sent)
        assert len(harness.server._connections) == len(clients)


async def test_the_slowest_sender_loses_its_memory_where_others_wait_too_long() -> None:
    async with full() as (harness, clients):
        client = await harness.connect()
        client.send(large(8))
        await until(lambda: _waiting(harness) == 1)
        sent = HALF
        for _ in range(2):
            sent = await _all_send_more(harness, clients, sent)
        assert len(harness.server._connections) == len(clients) + 1, "it may still take as long"
        harness.advance(SWEEP_MS)
        assert (await client.answer())[0] == 8
        assert await clients[0].is_closed(), "it has been sending for longest"
        harness.advance(SWEEP_MS)
        assert len(harness.server._connections) == len(clients), "one is enough"


class Later(RawHandler):
    """Serves each request in turns, when the test opens the gate; to its end where that is said."""

    api_key = ApiKey.METADATA
    versions = Versions(0, 0)

    def __init__(self, *, to_its_end: bool) -> None:
        self.gate, self.begun, self.to_its_end = asyncio.Event(), 0, to_its_end

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        self.begun += 1
        return OrderedAnswer(
            partial(self._serve, own_body(frame, offset)), continues=self.to_its_end
        )

    async def _serve(self, body: memoryview, _: OrderedAnswer) -> list[object]:
        await self.gate.wait()
        return [bytes(body[:3])]


async def test_a_request_served_in_slices_holds_its_memory_until_it_is_answered() -> None:
    handler = Later(to_its_end=False)
    async with serving(handler, limits=LIMITS) as harness:
        clients = [await harness.connect(f"127.0.0.{2 + n % 2}") for n in range(6)]
        for each in clients:
            each.send(large())
        await until(lambda: handler.begun == 4 and _waiting(harness) == 2)
        assert BOUND <= harness.server.memory.used_bytes <= BOUND + LARGE
        handler.gate.set()
        for each in clients:
            assert (await each.answer())[1] == b"..."
        assert harness.server.memory.used_bytes == 0


@pytest.mark.parametrize("to_its_end", [False, True])
async def test_work_that_continues_without_its_client_keeps_its_memory(to_its_end: bool) -> None:
    handler = Later(to_its_end=to_its_end)
    async with serving(handler, limits=LIMITS) as harness:
        for n in range(3):
            client = await harness.connect(f"127.0.0.{2 + n}")
            client.send(large())
            await until(lambda n=n: handler.begun == n + 1)
            client.close()
            (connection,) = harness.server._connections
            connection.close("the peer is gone")
        used = harness.server.memory.used_bytes
        if to_its_end:
            assert used >= 3 * LARGE
        handler.gate.set()
        await until(lambda: harness.server.memory.used_bytes == 0)


async def test_a_longer_buffer_that_a_frame_is_given_counts_in_full() -> None:
    limits = NetworkLimits(request_bytes_max=2 * KEPT_BYTES_MAX)
    async with serving(limits=limits) as harness:
        client = await harness.connect()
        client.send(frame(bytes(KEPT_BYTES_MAX - 100)))
        await client.answer()
        client.send(frame(bytes(60_000))[:30_000])
        await until(lambda: _begun(harness) == 1)
        (connection,) = harness.server._connections
        assert connection._frame is not None
        assert harness.server.memory.used_bytes == len(connection._frame._buffer) > LARGE


async def test_small_requests_take_nothing() -> None:
    seen: list[int] = []
    async with serving(
        lambda _, body: [seen.append(harness.server.memory.used_bytes) or body], limits=LIMITS
    ) as harness:
        client = await harness.connect()
        client.send(frame(bytes(SMALL_FRAME_BYTES - 100)) * 10)
        for _ in range(10):
            await client.answer()
        client.send(large())
        await client.answer()
    assert seen[:10] == [0] * 10
    assert seen[10] >= LARGE
