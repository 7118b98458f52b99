"""Requests that are served in iterations of the loop.

Nothing behind them on the connection is first.
"""

import asyncio
import os
from functools import partial
from typing import Any

import pytest

from broker.network.buffers import KEPT_BYTES_MAX
from broker.network.registry import (
    KEPT_FRAME_BYTES,
    CloseConnection,
    OrderedAnswer,
    RawHandler,
    RequestContext,
    own_body,
)
from broker.network.server import SCRATCH_BYTES, SWEEP_MS
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from tests.support.worlds.network import frame, serving
from tests.support.worlds.waiting import until


class Echo(RawHandler):
    """Answers a body that begins with "turns" when the test opens its gate; others at once."""

    api_key = ApiKey.METADATA
    versions = Versions(0, 0)

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        start = bytes(frame[offset : offset + 8])
        self.served.append(start)
        if start.startswith(b"turns"):
            return OrderedAnswer(partial(self._later, own_body(frame, offset)))
        return [bytes(frame[offset:])]

    async def _later(self, body: memoryview, _: OrderedAnswer) -> list[object]:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [body]


@pytest.mark.parametrize("size", [8, 40_000, KEPT_FRAME_BYTES + 1])
@pytest.mark.parametrize("next_size", [8, 300_000])
async def test_what_comes_behind_is_served_when_it_is_done(size: int, next_size: int) -> None:
    handler = Echo()
    first = b"turns".ljust(size, b".")
    second = b"next".ljust(next_size, b".")
    async with serving(handler) as harness:
        client = await harness.connect()
        other = await harness.connect()
        client.send(frame(b"before", correlation_id=1) + frame(first, correlation_id=2))
        client.send(frame(second, correlation_id=3))
        assert await client.answer() == (1, b"before")
        await until(lambda: len(handler.served) == 2)
        other.send(frame(b"other", correlation_id=9))
        assert await other.answer() == (9, b"other")
        assert [one[:5] for one in handler.served] == [b"befor", b"turns", b"other"]
        handler.gate.set()
        assert await client.answer() == (2, first)
        assert await client.answer() == (3, second)


@pytest.mark.parametrize("size", [SCRATCH_BYTES // 2, KEPT_FRAME_BYTES + 1, KEPT_BYTES_MAX])
async def test_its_bytes_stay_while_others_use_the_buffers(size: int) -> None:
    handler = Echo()
    body = b"turns" + os.urandom(size - 5)
    async with serving(handler) as harness:
        client, other = await harness.connect(), await harness.connect()
        client.send(frame(body, correlation_id=1))
        await until(lambda: len(handler.served) == 1)
        for _ in range(3):
            other.send(frame(bytes(size)))
            assert (await other.answer())[1] == bytes(size)
        handler.gate.set()
        assert await client.answer() == (1, body)


class Parked(Echo):
    """A body that begins with "park" is answered when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.parked: list[asyncio.Future[list[object]]] = []
        self.begun = self.ended = 0
        self.continues = False

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        answer = super().raw(context, frame, offset)
        if self.served[-1].startswith(b"park"):
            self.parked.append(asyncio.get_running_loop().create_future())
            return self.parked[-1]
        if type(answer) is OrderedAnswer:
            answer.continues = self.continues
        return answer

    async def _later(self, body: memoryview, in_order: OrderedAnswer) -> list[object]:
        self.begun += 1
        try:
            return await super()._later(body, in_order)
        finally:
            self.ended += 1


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("is_alone", [False, True])
async def test_an_earlier_one_that_fails_ends_what_is_served_behind_it(
    continues: bool, is_alone: bool
) -> None:
    """Its memory is given back when nothing uses it, also where others are still answered."""
    handler = Parked()
    handler.continues = continues
    async with serving(handler) as harness:
        client, memory = await harness.connect(), harness.server.memory
        client.send(frame(b"park", correlation_id=1) * (1 if is_alone else 2))
        client.send(frame(b"turns".ljust(200_000), correlation_id=2))
        await until(lambda: handler.begun == 1)
        handler.parked[-1].set_exception(CloseConnection("as the test wants it"))
        await until(lambda: bool(continues or handler.ended))
        if continues:
            assert memory.used_bytes > 200_000, "it is in use"
            handler.gate.set()
        await until(lambda: not memory.used_bytes)
        if not is_alone:
            assert len(harness.server._connections) == 1
            handler.parked[0].set_result([b"first"])
            assert await client.answer() == (1, b"first")
        assert await client.is_closed()
        harness.advance(SWEEP_MS)
        assert not harness.server._connections
        assert not harness.server._per_ip
        assert handler.ended == 1


async def test_frames_after_a_failure_are_not_read_in_a_pending_slice() -> None:
    """Of the large request that was being received only the middle is there."""
    handler = Parked()
    async with serving(handler) as harness:
        client, memory = await harness.connect(), harness.server.memory
        client.send(frame(b"park", correlation_id=1) * 2 + frame(bytes(200_000))[:50_000])
        await until(lambda: memory.used_bytes > 200_000)
        (connection,) = harness.server._connections
        handler.parked[1].set_exception(CloseConnection("as the test wants it"))
        await until(lambda: not memory.used_bytes)
        client.send(frame(b"never"))
        await client.writer.drain()
        connection.run_slice(harness.server.clock.monotonic_ns())
        handler.parked[0].set_result([b"first"])
        assert await client.answer() == (1, b"first")
        assert await client.is_closed()
        assert handler.served == [b"park"] * 2


async def test_one_that_ends_the_connection_leaves_what_is_behind_it_unserved() -> None:
    handler = Echo()
    handler.error = CloseConnection("as the test wants it")
    async with serving(handler) as harness:
        client = await harness.connect()
        client.send(frame(b"turns") + frame(b"never"))
        await until(lambda: len(handler.served) == 1)
        handler.gate.set()
        assert await client.is_closed()
        assert handler.served == [b"turns"]
