"""What one request of a connection changes is there for those behind it; real sockets."""

import asyncio
from typing import Any

import pytest

from broker.network.limits import NetworkLimits
from broker.network.registry import DecodedHandler, OrderedAnswer, RawHandler, RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.schema import Versions
from tests.support.worlds.network import Client, Harness, frame, serving
from tests.support.worlds.waiting import until

LARGE = 300_000


class Served:
    """Which requests were begun, in which order; each waits for its gate, if it has one."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    async def answer(self, name: str, answer: Any) -> Any:
        await self.gates[name].wait()
        return answer


class Change(DecodedHandler):
    """FindCoordinator; the key names the request."""

    api_key = ApiKey.FIND_COORDINATOR
    versions = Versions(0, 0)

    def __init__(self, served: Served) -> None:
        self.served = served

    def handle(self, context: RequestContext, request: Any) -> Any:
        self.served.begun.append(request.key)
        answer = response(self.api_key).cls(host=request.key)
        if request.key not in self.served.gates:
            return answer
        return self.served.answer(request.key, answer)


class Raw(RawHandler):
    """The first ten bytes of the body name the request."""

    versions = Versions(3, 3)

    def __init__(self, api_key: ApiKey, served: Served, *, is_change: bool) -> None:
        self.api_key, self.served, self.is_change = api_key, served, is_change

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        name = bytes(frame[offset : offset + 10]).rstrip().decode()
        self.served.begun.append(name)
        if name not in self.served.gates:
            return [name.encode()]
        answer = self.served.answer(name, [name.encode()])
        return OrderedAnswer(lambda _: answer) if name.startswith("turn") else answer


def change(name: str) -> bytes:
    message = request(ApiKey.FIND_COORDINATOR)
    return frame(message.encode(message.cls(key=name), 0), api_key=ApiKey.FIND_COORDINATOR)


def produce(name: str, size: int = 10) -> bytes:
    return frame(name.encode().ljust(10).ljust(size), api_key=ApiKey.PRODUCE, version=3)


def fetch(name: str, size: int = 10) -> bytes:
    return frame(name.encode().ljust(10).ljust(size), api_key=ApiKey.FETCH, version=3)


def world(served: Served, **options: Any) -> Any:
    return serving(
        Change(served),
        Raw(ApiKey.PRODUCE, served, is_change=True),
        Raw(ApiKey.FETCH, served, is_change=False),
        **options,
    )


async def everything_sent_is_read(harness: Harness, client: Client) -> None:
    """Another connection is served in several turns meanwhile; nothing more comes by itself."""
    await client.writer.drain()
    other = await harness.connect()
    for _ in range(5):
        other.send(fetch("other"))
        assert (await other.answer())[1] == b"other"


def of_interest(served: Served) -> list[str]:
    return [name for name in served.begun if name != "other"]


@pytest.mark.parametrize("behind", [change, produce, fetch])
@pytest.mark.parametrize("size", [10, LARGE])
async def test_nothing_overtakes_a_request_that_is_decided_later(behind: Any, size: int) -> None:
    served = Served()
    gate = served.gate("first")
    async with world(served) as harness:
        client = await harness.connect()
        next_frame = behind("second") if behind is change else behind("second", size)
        client.send(change("first") + next_frame)
        await until(lambda: served.begun == ["first"])
        await everything_sent_is_read(harness, client)
        assert of_interest(served) == ["first"]
        gate.set()
        assert b"first" in (await client.answer())[1]
        assert b"second" in (await client.answer())[1]


async def test_among_controllers_requests_do_not_wait_for_each_other() -> None:
    served = Served()
    gate = served.gate("first")
    async with world(served, may_overtake=True) as harness:
        client = await harness.connect()
        client.send(change("first") + change("second"))
        await until(lambda: served.begun == ["first", "second"])
        gate.set()
        assert b"first" in (await client.answer())[1]
        assert b"second" in (await client.answer())[1]


@pytest.mark.parametrize(("behind", "size"), [(change, 0), (fetch, 10), (fetch, LARGE)])
async def test_a_batch_that_is_not_committed_is_passed_by_batches_alone(
    behind: Any, size: int
) -> None:
    served = Served()
    gates = [served.gate(name) for name in ("one", "two", "three")]
    async with world(served) as harness:
        client = await harness.connect()
        next_frame = behind("behind", size) if size else behind("behind")
        client.send(produce("one") + produce("two", LARGE) + produce("three") + next_frame)
        client.send(produce("last"))
        await until(lambda: of_interest(served) == ["one", "two", "three"])
        gates[2].set()
        gates[0].set()
        assert await client.answer() == (0, b"one")
        await everything_sent_is_read(harness, client)
        assert of_interest(served) == ["one", "two", "three"]
        gates[1].set()
        names = [(await client.answer())[1] for _ in range(4)]
        assert names[:2] == [b"two", b"three"]
        assert b"behind" in names[2]
        assert names[3] == b"last"
        assert of_interest(served) == ["one", "two", "three", "behind", "last"]


async def test_a_fetch_that_waits_for_news_holds_nothing_up() -> None:
    served = Served()
    gate = served.gate("parked")
    async with world(served) as harness:
        client = await harness.connect()
        client.send(fetch("parked") + change("a") + produce("b") + fetch("c", LARGE))
        await until(lambda: served.begun == ["parked", "a", "b", "c"])
        gate.set()
        answers = [(await client.answer())[1] for _ in range(4)]
        assert [answers[0], *answers[2:]] == [b"parked", b"b", b"c"]


async def test_a_later_batch_still_blocks_when_an_earlier_one_is_answered() -> None:
    served = Served()
    batch, turn = served.gate("batch"), served.gate("turn")
    async with world(served) as harness:
        client = await harness.connect()
        client.send(produce("batch") + produce("turn") + produce("behind"))
        await until(lambda: served.begun == ["batch", "turn"])
        batch.set()
        assert await client.answer() == (0, b"batch")
        await everything_sent_is_read(harness, client)
        assert of_interest(served) == ["batch", "turn"]
        turn.set()
        assert await client.answer() == (0, b"turn")
        assert await client.answer() == (0, b"behind")


async def test_a_connection_is_not_idle_right_after_a_late_answer() -> None:
    served = Served()
    gate = served.gate("late")
    async with world(served, limits=NetworkLimits(idle_ms_max=10_000)) as harness:
        client = await harness.connect()
        client.send(change("late"))
        await until(lambda: served.begun == ["late"])
        harness.advance(60_000)
        gate.set()
        assert b"late" in (await client.answer())[1]
        harness.advance(9_000)
        client.send(change("again"))
        assert b"again" in (await client.answer())[1]
