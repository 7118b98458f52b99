"""What a client that asks much and reads nothing may cost: a bounded amount; real sockets."""

import asyncio
from typing import Any

import pytest

from broker.network.dispatch import DECODED_AT_ONCE_BYTES
from broker.network.intake import LARGE_BEGINS_BYTES
from broker.network.limits import NetworkLimits
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.schema import Versions
from tests.support.worlds.network import Client, Harness, frame, serving
from tests.support.worlds.waiting import until

ANSWER_BYTES = 100_000
UNSENT_BYTES_MAX = 1_000_000
REQUESTS = 400
SYSTEM_ANSWERS = 100
"""Answers of that size that fit into the sockets' buffers, at the most."""


async def unread(harness: Harness) -> Client:
    """A client that reads nothing."""
    client = await harness.connect()
    client.writer.transport.pause_reading()
    return client


@pytest.mark.parametrize("request_bytes", [100, 100_000])
async def test_answers_that_nobody_reads_end_the_reading(request_bytes: int) -> None:
    served = 0

    def raw(_: RequestContext, body: bytes) -> list[object]:
        nonlocal served
        served += 1
        return [bytes(ANSWER_BYTES)]

    limits = NetworkLimits(unsent_bytes_max=UNSENT_BYTES_MAX, send_buffer_bytes=65_536)
    async with serving(raw, limits=limits) as harness:
        client = await unread(harness)
        client.send(frame(bytes(request_bytes)) * REQUESTS)
        await harness.stops_reading()
        (connection,) = harness.server._connections
        assert connection._sender.unsent_bytes <= UNSENT_BYTES_MAX + 2 * ANSWER_BYTES
        assert served < SYSTEM_ANSWERS + UNSENT_BYTES_MAX // ANSWER_BYTES
        client.writer.transport.resume_reading()
        for _ in range(REQUESTS):
            assert (await client.answer())[1] == bytes(ANSWER_BYTES)


@pytest.mark.parametrize(
    ("request_bytes", "comes_late"), [(100, False), (100_000, False), (100_000, True)]
)
async def test_answers_behind_one_that_is_late_end_the_reading(
    request_bytes: int, comes_late: bool
) -> None:
    gate: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
    served = 0

    async def late(answer: list[object]) -> list[object]:
        return answer

    def raw(_: RequestContext, body: bytes) -> Any:
        nonlocal served
        served += 1
        if served == 1:
            return gate
        answer: list[object] = [bytes(ANSWER_BYTES)]
        return late(answer) if comes_late else answer

    limits = NetworkLimits(unsent_bytes_max=UNSENT_BYTES_MAX)
    async with serving(raw, limits=limits) as harness:
        client = await harness.connect()
        client.send(frame(bytes(request_bytes)) * 100)
        await until(lambda: any(each._paused for each in harness.server._connections))
        for _ in range(20):
            await asyncio.sleep(0)
        assert served <= 3 + UNSENT_BYTES_MAX // ANSWER_BYTES
        gate.set_result([b"first"])
        assert (await client.answer())[1] == b"first"
        for _ in range(99):
            assert (await client.answer())[1] == bytes(ANSWER_BYTES)


class Long(DecodedHandler):
    """CreateTopics, decided when the test opens the gate."""

    api_key = ApiKey.CREATE_TOPICS
    versions = Versions(2, 2)

    def __init__(self) -> None:
        self.begun, self.gate = 0, asyncio.Event()

    async def handle(self, context: RequestContext, request: Any) -> Any:
        self.begun += 1
        await self.gate.wait()
        return response(self.api_key).cls()


@pytest.mark.parametrize("may_overtake", [False, True])
async def test_of_long_requests_one_at_a_time_is_in_memory(may_overtake: bool) -> None:
    handler = Long()
    codec = request(ApiKey.CREATE_TOPICS)
    topics = [codec.cls.Topics(name=f"topic-{i:020}") for i in range(3_000)]
    body = codec.encode(codec.cls(topics=topics), 2)
    assert len(body) > DECODED_AT_ONCE_BYTES
    async with serving(handler, may_overtake=may_overtake) as harness:
        client = await harness.connect()
        client.send(frame(body, api_key=ApiKey.CREATE_TOPICS, version=2) * 10)
        await until(lambda: handler.begun == 1)
        (connection,) = harness.server._connections
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(connection._unanswered.slots) == 1
        assert handler.begun == 1
        assert connection._frame is None
        handler.gate.set()
        for _ in range(10):
            await client.answer()


async def test_a_few_bytes_of_a_large_frame_take_no_buffer() -> None:
    async with serving() as harness:
        client = await harness.connect()
        data = frame(bytes(90_000), correlation_id=8)
        (connection,) = harness.server._connections
        for begin, end in ((0, 4), (4, 10), (10, LARGE_BEGINS_BYTES)):
            await harness.send_and_be_read(client, data[begin:end])
            assert connection._frame is None
        await harness.send_and_be_read(client, data[LARGE_BEGINS_BYTES : LARGE_BEGINS_BYTES + 9])
        assert connection._frame is not None
        client.send(data[LARGE_BEGINS_BYTES + 9 :])
        assert (await client.answer())[0] == 8
