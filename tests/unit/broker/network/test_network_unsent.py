"""What waits for all peers is bounded: those that read little are closed, the others are served."""

import asyncio
import logging
from typing import Any

import pytest

from broker.network.limits import NetworkLimits
from broker.network.registry import RequestContext
from tests.support.worlds.network import Client, frame, serving
from tests.support.worlds.waiting import until

ANSWER = 4_000_000
BOUND = 20_000_000
LIMITS = NetworkLimits(unsent_bytes_max=ANSWER, all_unsent_bytes_max=BOUND, send_buffer_bytes=4_096)


def long(_: RequestContext, body: bytes) -> list[object]:
    return [body] if body == b"short" else [bytes(ANSWER)]


def stop_reading(client: Client) -> None:
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]


async def test_those_that_do_not_read_are_closed_and_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(long, limits=LIMITS) as harness:
        server, most = harness.server, 0
        reader = await harness.connect()
        for n in range(12):
            client = await harness.connect()
            stop_reading(client)
            client.send(frame(b"1", correlation_id=n) * 3)
            reader.send(frame(b"short", correlation_id=n))
            assert await reader.answer() == (n, b"short")
            await until(
                lambda: (
                    sum(one.waiting_bytes > 0 for one in server._connections) > 0
                    and not server.unsent._closing_is_due
                )
            )
            most = max(most, server.unsent.bytes)
        assert most <= BOUND + 3 * ANSWER
        assert server.unsent.bytes == sum(one.waiting_bytes for one in server._connections)
        closed = [r for r in caplog.records if "the most of all" in r.getMessage()]
        assert len(closed) == 13 - len(server._connections) > 0
        assert {record.levelno for record in closed} == {logging.WARNING}
        reader.send(frame(b"", correlation_id=77))
        assert await reader.answer() == (77, bytes(ANSWER))
        for one in list(server._connections):
            one.close("the test is over", quiet=True)
        assert server.unsent.bytes == 0


async def test_answers_that_wait_for_an_earlier_one_count_too() -> None:
    gate: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def serve(_: RequestContext, body: bytes) -> Any:
        return gate if body == b"late" else [bytes(1_000)]

    async with serving(serve, limits=LIMITS) as harness:
        client = await harness.connect()
        client.send(frame(b"late") + frame(b"x", correlation_id=1) * 5)
        await until(lambda: harness.server.unsent.bytes >= 5_000)
        harness.server.unsent.show()
        (shown,) = [
            one.value
            for one in harness.metrics.samples()
            if one.name == "tidemark_connections_unsent_bytes"
        ]
        assert shown == harness.server.unsent.bytes
        gate.set_result([b"here"])
        assert await client.answer() == (0, b"here")
        for _ in range(5):
            assert await client.answer() == (1, bytes(1_000))
        assert harness.server.unsent.bytes == 0
