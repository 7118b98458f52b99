"""Buffers and connections that no other test fills: few are kept, and none for ever."""

import asyncio
import os
import socket

import pytest

from broker.network.buffers import FIRST_BYTES, KEPT_BUFFERS, KEPT_BYTES_MAX, FrameBuffers
from broker.observe.http import TEXT, HttpAnswer, HttpLimits, HttpServer, pages
from rlm.read.chunk_loader import _Buffers
from tests.support.worlds.waiting import until


def test_few_receive_buffers_are_kept_and_none_that_is_large() -> None:
    buffers = FrameBuffers()
    taken = [buffers.take(1 << 30) for _ in range(KEPT_BUFFERS + 5)]
    assert {len(one) for one in taken} == {FIRST_BYTES}  # not what was announced
    large = buffers.grow(taken.pop(), KEPT_BYTES_MAX * 2)
    while len(large) <= KEPT_BYTES_MAX:
        large = buffers.grow(large, KEPT_BYTES_MAX * 2)
    for one in [*taken, large]:
        buffers.give_back(one)
    assert len(buffers._free) == KEPT_BUFFERS
    assert max(map(len, buffers._free)) <= KEPT_BYTES_MAX
    buffers.trim()  # they were used since the last time
    assert len(buffers._free) == KEPT_BUFFERS
    buffers.trim()
    assert buffers._free == []


def test_few_read_buffers_are_kept() -> None:
    buffers = _Buffers()
    taken = [buffers.take(1_000) for _ in range(30)]
    for one in taken:
        buffers.give_back(one)
    assert len(buffers._free) == _Buffers._KEPT
    assert len(buffers.take(5_000)) == 5_000


@pytest.mark.parametrize(
    "limits", [HttpLimits(connections=2), HttpLimits(connections_per_ip=2)], ids=["all", "own"]
)
async def test_of_half_http_requests_beyond_the_limit_the_oldest_goes(limits: HttpLimits) -> None:
    """A probe is answered, however many connections others keep open."""
    hello = HttpAnswer(200, TEXT, b"hello")
    server = HttpServer("127.0.0.1", 0, pages({"/": lambda: hello}), limits)
    await server.start()
    try:
        opened = []
        for _ in range(3):
            opened.append(await asyncio.open_connection("127.0.0.1", server.port))
            opened[-1][1].write(b"GET / HTTP/1.1\r\n")
        (oldest, _), *later = opened
        gone = await oldest.read()
        for _, writer in later:
            writer.write(b"\r\n")
        served = [await reader.read() for reader, _ in later]
        for _, writer in opened:
            writer.close()
    finally:
        await server.stop()
    assert gone == b""
    assert served[0] == served[1]
    assert served[0].endswith(b"hello")


async def test_http_requests_that_are_being_answered_keep_their_places() -> None:
    may_answer = asyncio.Event()

    async def slow() -> HttpAnswer:
        await may_answer.wait()
        return HttpAnswer(200, TEXT, b"late")

    server = HttpServer("127.0.0.1", 0, pages({"/": slow}), HttpLimits(connections=1))
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: bool(server._serving) and not server._waiting)
        refused, other = await asyncio.open_connection("127.0.0.1", server.port)
        assert await refused.read() == b""
        may_answer.set()
        assert (await reader.read()).endswith(b"late")
        writer.close()
        other.close()
    finally:
        await server.stop()


async def test_half_http_requests_end_in_their_time_and_leave_their_places() -> None:
    hello = HttpAnswer(200, TEXT, b"hello")
    limits = HttpLimits(body_bytes=100, head_s=0.05, body_s=0.05)
    server = HttpServer("127.0.0.1", 0, lambda _: hello, limits)
    await server.start()
    try:
        for half in (b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(half)
            assert await reader.read() == b""
            writer.close()
        assert server._waiting == {}
        await until(lambda: not server._serving)
    finally:
        await server.stop()


async def test_whole_requests_of_one_address_leave_places_to_others() -> None:
    """Also while all are being answered, and so do not give way."""
    may_answer = asyncio.Event()

    async def slow() -> HttpAnswer:
        await may_answer.wait()
        return HttpAnswer(200, TEXT, b"late")

    hello = HttpAnswer(200, TEXT, b"hello")
    limits = HttpLimits()
    server = HttpServer("127.0.0.1", 0, pages({"/slow": slow, "/": lambda: hello}), limits)
    await server.start()
    try:
        opened = []
        for _ in range(limits.connections + 1):
            opened.append(await asyncio.open_connection("127.0.0.1", server.port))
            opened[-1][1].write(b"GET /slow HTTP/1.1\r\n\r\n")
        await until(lambda: bool(server._serving) and not server._waiting)
        assert list(server._serving.values()) == ["127.0.0.1"] * limits.connections_per_ip
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, local_addr=("127.0.0.2", 0)
        )
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"hello")
        may_answer.set()
        answers = [await _all_of(one) for one, _ in opened]
        assert sum(answer.endswith(b"late") for answer in answers) == limits.connections_per_ip
        for _, one in [*opened, (reader, writer)]:
            one.close()
    finally:
        await server.stop()


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    """What was sent until the connection ended, in whatever way."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_half_bodies_give_way_as_half_heads_do() -> None:
    hello = HttpAnswer(200, TEXT, b"hello")
    limits = HttpLimits(body_bytes=100, body_s=600, connections=1)
    server = HttpServer("127.0.0.1", 0, lambda _: hello, limits)
    await server.start()
    try:
        half, half_writer = await asyncio.open_connection("127.0.0.1", server.port)
        half_writer.write(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf")
        await until(lambda: bool(server._waiting))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST / HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"hello")
        assert await half.read() == b""
        for one in (half_writer, writer):
            one.close()
    finally:
        await server.stop()


@pytest.mark.parametrize("answer_s", [600.0, 0.05], ids=["newcomer", "time"])
async def test_a_client_that_does_not_read_http_keeps_no_place_or_descriptor(
    answer_s: float,
) -> None:
    """Little enough is left over for the last write not to wait by itself."""
    page = HttpAnswer(200, TEXT, b"", [b"x" * 10_000] * 2)
    limits = HttpLimits(answer_s=answer_s, connections=1)
    server = HttpServer("127.0.0.1", 0, pages({"/": lambda: page}), limits)
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as deaf:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # accepted ones have it, too
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        server._server = await asyncio.start_server(server._serve, sock=listening)
        try:
            before = len(os.listdir("/proc/self/fd"))
            deaf.connect(("127.0.0.1", server.port))
            deaf.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: bool(server._waiting))
            if answer_s > 1:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert (await reader.read()).endswith(b"x" * 20_000)
                writer.close()
                await writer.wait_closed()
            await until(lambda: len(os.listdir("/proc/self/fd")) == before)
        finally:
            await server.stop()
