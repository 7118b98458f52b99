"""Buffers and connections that no other test fills: few are kept, and none for ever."""

import asyncio

from broker.network.buffers import FIRST_BYTES, KEPT_BUFFERS, KEPT_BYTES_MAX, FrameBuffers
from broker.observe.http import TEXT, HttpAnswer, HttpLimits, HttpServer, pages
from rlm.read.chunk_loader import _Buffers


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


async def test_http_connections_beyond_the_limit_are_closed() -> None:
    hello = HttpAnswer(200, TEXT, b"hello")
    server = HttpServer("127.0.0.1", 0, pages({"/": lambda: hello}), HttpLimits(connections=2))
    await server.start()
    try:
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        (refusing, _), *silent = reversed(opened)
        refused = await refusing.read()
        for _, writer in silent:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
        served = [await reader.read() for reader, _ in silent]
        for _, writer in opened:
            writer.close()
    finally:
        await server.stop()
    assert refused == b""
    assert served[0] == served[1]
    assert served[0].endswith(b"hello")
