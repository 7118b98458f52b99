"""A connection with many requests ready gives others a turn; real sockets, the clock by hand."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from broker.network.limits import NetworkLimits
from broker.network.registry import DecodedHandler, RequestContext
from broker.network.server import SWEEP_MS
from broker.network.time_slices import QUEUES_NS, SLICE_NS, TimeSlices
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.schema import Versions
from tests.support.sim.clock import ManualClock
from tests.support.worlds.network import frame, serving
from tests.support.worlds.waiting import until

COST_MS = 2
assert SLICE_NS <= COST_MS * 1_000_000, "a time slice is over after one request"
AT_ONCE = QUEUES_NS // (COST_MS * 1_000_000)
"""Requests that are served of those in line before the loop looks for newcomers."""


class Costly:
    """Serves requests that take long, and notes in which iteration of the loop each was served."""

    def __init__(self) -> None:
        self.advance: Callable[[int], None] = lambda _: None
        self.served: list[bytes] = []
        self.turns = Counter[int]()
        self.meanwhile: Callable[[bytes], Any] = lambda _: None
        self._turn = 0

    def __call__(self, _: RequestContext, body: bytes) -> Any:
        if not self.served:
            self._count_turns()
        self.served.append(body)
        self.turns[self._turn] += 1
        self.advance(COST_MS)
        answer = self.meanwhile(body)
        return [body] if answer is None else answer

    def _count_turns(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._count_turns)


def body(i: int) -> bytes:
    return b"%010d" % i


def frames(count: int) -> bytes:
    return b"".join(frame(body(i), correlation_id=i) for i in range(count))


async def test_a_turn_ends_after_some_time_and_answers_keep_their_order() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        client = await harness.connect()
        client.send(frames(100))
        assert [await client.answer() for _ in range(100)] == [(i, body(i)) for i in range(100)]
        assert max(costly.turns.values()) == AT_ONCE


async def test_another_connection_of_the_address_is_served_in_between() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        busy, other = await harness.connect(), await harness.connect()
        costly.meanwhile = lambda asked: other.send(frame(b"other")) if asked == body(0) else None
        busy.send(frames(100))
        assert await other.answer() == (0, b"other")
        assert costly.served.index(b"other") <= 5 * AT_ONCE
        assert len([await busy.answer() for _ in range(100)]) == 100


@pytest.mark.parametrize("addresses", [1, 30])
async def test_a_newcomer_waits_for_little_whoever_is_busy(addresses: int) -> None:
    """Not until each of 30 busy connections, of one address or of many, has had its slice."""
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        busy = [await harness.connect(f"127.0.1.{1 + n % addresses}") for n in range(30)]
        other = await harness.connect("127.0.0.9")
        waits: list[int] = []
        for each in busy:
            each.send(frames(20))
        await until(lambda: len(costly.served) >= 60)
        for n in range(20):
            began = len(costly.served)
            other.send(frame(b"other", correlation_id=n))
            assert await other.answer() == (n, b"other")
            waits.append(len(costly.served) - began)
        assert sorted(waits)[10] <= 4 * AT_ONCE
        for each in busy:
            assert [await each.answer() for _ in range(20)] == [(i, body(i)) for i in range(20)]


async def test_addresses_have_turns_however_many_connections_one_of_them_has() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        many = [await harness.connect("127.0.1.1") for _ in range(30)]
        one = await harness.connect("127.0.1.2")
        for each in [*many, one]:
            each.send(b"".join(frame(b"one" if each is one else b"many") for _ in range(20)))
        for _ in range(20):
            assert await one.answer() == (0, b"one")
        rest = costly.served[: len(costly.served) - costly.served[::-1].index(b"one")]
        assert 15 <= rest.count(b"many") <= 20 + 2 * AT_ONCE, "one of each"
        for each in many:
            for _ in range(20):
                await each.answer()


async def test_connections_that_ask_for_one_thing_have_turns_as_well() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        clients = [await harness.connect() for _ in range(30)]
        for each in clients:
            each.send(frames(1))
        for each in clients:
            assert await each.answer() == (0, body(0))
        assert max(costly.turns.values()) <= AT_ONCE + 1


async def test_connections_of_an_address_are_served_in_order_of_arrival() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        clients = [await harness.connect() for _ in range(10)]
        for n, each in enumerate(clients):
            each.send(frame(b"%d" % n) * 10)
        for each in clients:
            for _ in range(10):
                await each.answer()
        so_far = Counter[bytes]()
        for served in costly.served:
            so_far[served] += 1
            assert so_far[served] <= min(so_far[b"%d" % n] for n in range(10)) + 2


async def test_requests_that_cost_nothing_are_served_in_one_turn() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        client = await harness.connect()
        client.send(frames(200))
        for _ in range(200):
            await client.answer()
        assert list(costly.turns.values()) == [200]


class Member:
    """Waits in the queue again until it has had so many turns.

    Fails in its first, if it is broken.
    """

    def __init__(
        self, turns: TimeSlices, address: str, count: int, *, is_broken: bool = False
    ) -> None:
        self.turns, self.account, self.left = turns, turns.account(address), count
        self.is_broken, self.failed = is_broken, list[Exception]()
        turns.join(self)

    def run_slice(self, now_ns: int) -> None:
        if self.is_broken:
            raise ValueError("broken")
        self.left -= 1
        if self.left:
            self.turns.join(self)

    def fail(self, error: Exception) -> None:
        self.failed.append(error)


def test_a_connection_that_fails_in_its_slice_ends_and_others_continue() -> None:
    calls: list[Callable[[], None]] = []
    turns = TimeSlices(ManualClock(), calls.append)
    broken = [Member(turns, address, 1, is_broken=True) for address in ("a", "b")]
    others = [Member(turns, address, 3) for address in ("a", "b", "c")]
    while calls:
        calls.pop(0)()
    assert [len(one.failed) for one in broken] == [1, 1]
    assert [one.left for one in others] == [0, 0, 0]
    late = Member(turns, "d", 1)
    assert len(calls) == 1
    calls.pop()()
    assert late.left == 0


class NotAnswerable(DecodedHandler):
    """FindCoordinator: with the host that is asked for, which may be too long for its field."""

    api_key = ApiKey.FIND_COORDINATOR
    versions = Versions(0, 0)

    def __init__(self) -> None:
        self.advance: Callable[[int], None] = lambda _: None

    def handle(self, context: RequestContext, request: Any) -> Any:
        self.advance(COST_MS)
        host = "long" * (10_000 if request.key == "long" else 1)
        return response(self.api_key).cls(host=host)


def find(key: str) -> bytes:
    message = request(ApiKey.FIND_COORDINATOR)
    return frame(message.encode(message.cls(key=key), 0), api_key=ApiKey.FIND_COORDINATOR)


async def test_an_answer_that_cannot_be_encoded_ends_its_connection_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = NotAnswerable()
    async with serving(handler) as harness:
        handler.advance = harness.advance
        client, other = await harness.connect("127.0.1.1"), await harness.connect("127.0.1.2")
        client.send(find("short") * 3 + find("long") + find("never"))
        for _ in range(3):
            assert (await client.answer())[0] == 0
        assert await client.is_closed()
        other.send(find("short") * 5)
        for _ in range(5):
            assert (await other.answer())[0] == 0
    assert [one.levelname for one in caplog.records if "failed: api=FIND" in one.message] == [
        "ERROR"
    ]


async def test_what_lies_ready_after_a_pause_is_served_in_turns_as_well() -> None:
    costly = Costly()
    async with serving(costly, limits=NetworkLimits(in_flight_max=10)) as harness:
        costly.advance = harness.advance
        gate = asyncio.get_running_loop().create_future()
        costly.meanwhile = lambda asked: gate if asked == body(0) else None
        client = await harness.connect()
        client.send(frames(100))
        await until(lambda: len(costly.served) == 10)
        gate.set_result([b"first"])
        assert await client.answer() == (0, b"first")
        assert [await client.answer() for _ in range(99)] == [(i, body(i)) for i in range(1, 100)]
        assert max(costly.turns.values()) == AT_ONCE


async def test_an_answer_does_not_bring_the_next_turn_forward() -> None:
    """100 answers that come at once would else be 100 turns of the same connection."""
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        loop = asyncio.get_running_loop()
        gates = [loop.create_future() for _ in range(AT_ONCE)]

        def meanwhile(asked: bytes) -> Any:
            number = int(asked)
            if number == AT_ONCE - 1:
                for gate in gates:
                    gate.set_result([b"late"])
            return gates[number] if number < AT_ONCE else None

        costly.meanwhile = meanwhile
        client = await harness.connect()
        client.send(frames(50))
        for i in range(50):
            assert await client.answer() == (i, b"late" if i < AT_ONCE else body(i))
        assert max(costly.turns.values()) == AT_ONCE


async def test_a_large_request_behind_small_ones_is_received_whole() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        client = await harness.connect()
        large = b"x" * 200_000
        client.send(frames(20) + frame(large, correlation_id=20) + frame(b"end", correlation_id=21))
        answers = [await client.answer() for _ in range(22)]
        assert answers == [*((i, body(i)) for i in range(20)), (20, large), (21, b"end")]


async def test_answers_of_an_address_that_has_had_its_turn_are_sent() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        long = bytes(20_000_000)  # the socket takes a part of it at a time
        costly.meanwhile = lambda _: [long]
        client = await harness.connect()
        client.send(frames(2))
        for n in range(2):
            assert await client.answer() == (n, long)


async def test_a_stop_serves_nothing_more_of_what_waits_for_its_turn() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        stops: list[asyncio.Task[None]] = []

        def meanwhile(asked: bytes) -> None:
            if asked == body(0):
                stops.append(asyncio.ensure_future(harness.server.stop()))

        costly.meanwhile = meanwhile
        client = await harness.connect()
        client.send(frames(100))
        assert await client.answer() == (0, body(0))
        assert await client.is_closed()
        await stops[0]
        assert len(costly.served) == 1


async def test_a_client_that_has_gone_is_served_no_further() -> None:
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = harness.advance
        client = await harness.connect()

        def meanwhile(asked: bytes) -> None:
            if asked == body(0):
                (connection,) = harness.server._connections
                asyncio.get_running_loop().call_soon(connection.close, "gone")

        costly.meanwhile = meanwhile
        client.send(frames(100))
        await until(lambda: not harness.server._connections)
        turns = costly._turn
        await until(lambda: costly._turn > turns + 3)
        assert len(costly.served) == 1


async def test_what_the_connections_of_an_address_use_is_added_up() -> None:
    """None of them uses a turn of its own."""
    costly = Costly()
    async with serving(costly) as harness:
        costly.advance = lambda _: harness.advance(1)
        clients = [await harness.connect() for _ in range(30)]
        for each in clients:
            each.send(frames(1))
        for each in clients:
            assert await each.answer() == (0, body(0))
        assert max(costly.turns.values()) <= 2 + QUEUES_NS // 1_000_000


async def test_a_request_that_waits_for_our_turn_is_not_too_slow() -> None:
    async with serving(Costly(), limits=NetworkLimits(frame_ms_max=1_000)) as harness:
        client = await harness.connect()
        client.send(frames(1)[:6])
        (connection,) = harness.server._connections
        await until(lambda: len(connection._head) == 6)
        harness.server.slices.join(connection)
        harness.advance(1_000 + SWEEP_MS)
        assert not connection.closed
        client.send(frames(1)[6:])
        assert await client.answer() == (0, body(0))
