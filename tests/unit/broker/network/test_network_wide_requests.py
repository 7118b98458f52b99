"""Requests that decode to much are served few at a time; the others wait, and not for ever."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from broker.handlers.join_group import JoinGroupHandler
from broker.handlers.sync_group import SyncGroupHandler
from broker.network.dispatch import DECODED_AT_ONCE_BYTES
from broker.network.limits import NetworkLimits
from broker.network.registry import (
    DecodedHandler,
    OrderedAnswer,
    RawHandler,
    RequestContext,
    own_body,
)
from broker.network.request_memory import RequestMemory, of_objects
from broker.network.server import SWEEP_MS
from broker.network.wide_requests import ELEMENT_BYTES, WAIT_MS_MAX, WideRequests
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from kafka_protocol.wire.schema import Versions
from runtime.executors import InlinePool
from runtime.metrics import Registry
from tests.support.sim.clock import ManualClock
from tests.support.worlds.network import Client, Harness, frame, serving
from tests.support.worlds.pools import HeldPool, turns
from tests.support.worlds.waiting import until

ELEMENTS = 1_000
BOUND_BYTES = 4 * ELEMENTS * ELEMENT_BYTES
LIMITS = NetworkLimits(decoded_bytes_max=BOUND_BYTES)
OF_AN_ADDRESS, IN_ALL = 2, 4


class Wide(RawHandler):
    """Serves each request when the test opens the gate."""

    api_key = ApiKey.METADATA
    versions = Versions(0, 0)

    def __init__(self) -> None:
        self.gate, self.running, self.served = asyncio.Event(), 0, 0
        self.continues, self.lets_go = False, False

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        body = own_body(frame, offset)
        return OrderedAnswer(partial(self._serve, body), ELEMENTS, continues=self.continues)

    async def _serve(self, body: memoryview, in_order: OrderedAnswer) -> list[object]:
        self.running += 1
        try:
            if self.lets_go:
                in_order.let_go()
            await self.gate.wait()
            self.served += 1
            return [bytes(body)]
        finally:
            self.running -= 1


async def connected(harness: Harness, count: int, source: str) -> list[Client]:
    clients = [await harness.connect(source) for _ in range(count)]
    for each in clients:
        each.send(frame(source.encode()))
    return clients


def waiting(harness: Harness) -> int:
    return sum(len(queue) for queue in harness.server.wide.memory._queues.values())


async def test_few_of_an_address_and_few_in_all_are_served_at_a_time() -> None:
    handler = Wide()
    async with serving(handler, limits=LIMITS) as harness:
        clients = await connected(harness, 10, "127.0.1.1")
        await until(lambda: handler.running + waiting(harness) == 10)
        assert handler.running == OF_AN_ADDRESS
        for n in range(2, 6):
            clients += await connected(harness, 1, f"127.0.1.{n}")
        await until(lambda: handler.running + waiting(harness) == 14)
        assert handler.running == IN_ALL
        assert harness.server.wide.memory.used_bytes == IN_ALL * ELEMENTS * ELEMENT_BYTES
        handler.gate.set()
        for each in clients:
            assert (await each.answer())[1].startswith(b"127.0.1.")
        assert harness.server.wide.memory.used_bytes == 0


async def test_a_request_that_waits_for_others_gives_its_place_up() -> None:
    handler = Wide()
    handler.lets_go = True
    async with serving(handler, limits=LIMITS) as harness:
        await connected(harness, 10, "127.0.1.1")
        await until(lambda: handler.running == 10)
        assert harness.server.wide.memory.used_bytes == 0


class Joins(DecodedHandler):
    """Answers all when so many have asked, as a group's members are."""

    api_key = ApiKey.JOIN_GROUP
    versions = Versions(5, 5)
    waits_for_others = JoinGroupHandler.waits_for_others

    def __init__(self, members: int) -> None:
        self._members, self._all = members, asyncio.Event()

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """One member more."""
        self._members -= 1
        if self._members == 0:
            self._all.set()
        await self._all.wait()
        return response(ApiKey.JOIN_GROUP).cls(member_id="m")


async def test_members_that_wait_for_each_other_are_not_in_each_others_way() -> None:
    limits = NetworkLimits(decoded_bytes_max=1)
    join = request(ApiKey.JOIN_GROUP)
    protocols = [join.cls.Protocols(name="range", metadata=bytes(DECODED_AT_ONCE_BYTES))]
    body = join.encode(join.cls(group_id="g", protocol_type="consumer", protocols=protocols), 5)
    async with serving(Joins(4), limits=limits) as harness:
        clients = [await harness.connect("127.0.1.1") for _ in range(4)]
        for each in clients:
            each.send(frame(bytes(body), api_key=ApiKey.JOIN_GROUP, version=5))
        for each in clients:
            await each.answer()
    assert SyncGroupHandler.waits_for_others, "it waits for the leader's"


async def test_a_request_that_waits_too_long_ends_its_connection_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = Wide()
    async with serving(handler, limits=LIMITS) as harness:
        clients = await connected(harness, 5, "127.0.1.1")
        await until(lambda: handler.running + waiting(harness) == 5)
        harness.advance(WAIT_MS_MAX - SWEEP_MS)
        assert waiting(harness) == 3
        harness.advance(2 * SWEEP_MS)
        await until(lambda: len(harness.server._connections) == OF_AN_ADDRESS)
        closed = [r for r in caplog.records if "others' requests" in r.getMessage()]
        assert [record.levelno for record in closed] == [logging.WARNING] * 3
        handler.gate.set()
        answered = await asyncio.gather(*(one.is_closed() for one in clients[OF_AN_ADDRESS:]))
        assert answered == [True] * 3
        for each in clients[:OF_AN_ADDRESS]:
            await each.answer()
        assert harness.server.wide.memory.used_bytes == 0


@pytest.mark.parametrize("continues", [False, True])
async def test_a_client_that_has_gone_is_served_only_where_that_continues(continues: bool) -> None:
    handler = Wide()
    handler.continues = continues
    async with serving(handler, limits=LIMITS) as harness:
        clients = await connected(harness, 6, "127.0.1.1")
        await until(lambda: handler.running + waiting(harness) == 6)
        for each in clients:
            each.send(frame(b"unread") * 3)  # its end is behind it
            each.close()
        for each in clients:
            await each.writer.wait_closed()
        await until(lambda: _swept(harness))
        handler.gate.set()
        await until(lambda: harness.server.wide.memory.used_bytes == 0 and not waiting(harness))
        assert handler.served == (6 if continues else 0)


async def test_what_ends_while_it_waits_leaves_the_line_and_takes_nothing() -> None:
    """Memory that is taken for one that has gone is given back by nobody."""
    calls: list[Callable[[], None]] = []
    memory = RequestMemory(1_000, ManualClock(), calls.append, of_objects(Registry()))
    wide = WideRequests(memory, InlinePool("inline"))
    memory.take("a", 1_000)

    async def serve(_: OrderedAnswer) -> None:
        raise AssertionError("not its turn")

    for is_called in (False, True):
        in_order = OrderedAnswer(serve, 1)
        waits = asyncio.ensure_future(wide.serve("a", in_order))
        await asyncio.sleep(0)
        assert len(memory.waiting_since(0)) == 1
        waits.cancel()
        if is_called:  # in the very turn in which there is memory for it
            memory.give_back("a", 1_000)
            calls.pop()()
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert memory.waiting_since(0) == []
        assert memory.used_bytes == (0 if is_called else 1_000)


async def test_a_served_request_and_its_place_do_not_keep_each_other() -> None:
    calls: list[Callable[[], None]] = []
    memory = RequestMemory(1_000, ManualClock(), calls.append, of_objects(Registry()))

    async def serve(in_order: OrderedAnswer) -> object:
        return in_order.let_go

    in_order = OrderedAnswer(serve, 1)
    let_go = await WideRequests(memory, InlinePool("inline")).serve("a", in_order)
    assert in_order.let_go != let_go, "else only the collector frees them, and the frame with them"


async def test_what_is_counted_to_less_than_may_be_leaves_the_rest_to_others() -> None:
    gate, clock = asyncio.Event(), ManualClock()

    async def serve(_: OrderedAnswer) -> None:
        await gate.wait()

    loop, pool = asyncio.get_running_loop(), HeldPool()
    memory = RequestMemory(BOUND_BYTES, clock, loop.call_soon, of_objects(Registry()))
    wide = WideRequests(memory, pool)
    tasks = [
        asyncio.ensure_future(
            wide.serve(address, OrderedAnswer(serve, 9 * ELEMENTS, partial(int, count)))
        )
        for address, count in (("a", ELEMENTS), ("b", 2 * ELEMENTS), ("c", 90 * ELEMENTS))
    ]
    for used in (1 + 9, 1 + 2 + 9, 1 + 2 + 9):
        await pool.until_held()
        assert pool.held == 1, "those behind it are not even counted"
        pool.release()
        await turns()
        assert memory.used_bytes == used * ELEMENTS * ELEMENT_BYTES
    gate.set()
    await asyncio.gather(*tasks)
    assert memory.used_bytes == 0


async def test_one_request_of_a_busy_address_is_before_that_of_another() -> None:
    """Also where each is so long that to count what is in it takes long."""
    served: list[str] = []
    loop, pool = asyncio.get_running_loop(), HeldPool()
    memory = RequestMemory(BOUND_BYTES, ManualClock(), loop.call_soon, of_objects(Registry()))
    wide = WideRequests(memory, pool)

    def ask(address: str) -> asyncio.Future[Any]:
        async def serve(_: OrderedAnswer) -> None:
            await pool.run(served.append, address)

        return asyncio.ensure_future(
            wide.serve(address, OrderedAnswer(serve, 9 * ELEMENTS, lambda: 8 * ELEMENTS))
        )

    asked = [ask("busy") for _ in range(60)]
    await turns()
    asked.append(ask("other"))
    await turns()
    calls = 0
    while not asked[-1].done():
        await pool.until_held()
        pool.release(1)
        calls += 1
        await turns()
    assert served.count("busy") <= 2
    assert calls <= 6
    while not all(one.done() for one in asked):
        pool.release()
        await turns()
    assert served.count("busy") == 60


def _swept(harness: Harness) -> bool:
    harness.advance(SWEEP_MS)
    return not harness.server._connections
