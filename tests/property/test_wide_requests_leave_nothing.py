"""Whatever clients and handlers do: wide requests leave no memory, connection or turn behind.

Clients of a few addresses send, hang up and come again; handlers wait, fail and let go. At the end
each address is served again, and when all clients have gone nothing is counted any more.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from broker.network.limits import NetworkLimits
from broker.network.registry import (
    CloseConnection,
    OrderedAnswer,
    RawHandler,
    RequestContext,
    own_body,
)
from broker.network.server import SWEEP_MS
from broker.network.wide_requests import ELEMENT_BYTES, WAIT_MS_MAX
from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from tests.support.rounds import IS_PROVING
from tests.support.worlds.network import Client, Harness, frame, serving
from tests.support.worlds.waiting import PATIENCE_S, until

HISTORIES = 300 if IS_PROVING else 25
ADDRESSES = 4
LIMITS = NetworkLimits(
    decoded_bytes_max=4_000 * ELEMENT_BYTES,
    requests_bytes_max=400_000,
    all_unsent_bytes_max=1_000_000,
)
ERRORS: tuple[Callable[[], BaseException], ...] = (
    partial(ValueError, "as the rng decides"),
    partial(CloseConnection, "as the rng decides"),
    partial(MalformedMessageError, "as the rng decides"),
    asyncio.CancelledError,
)


class Whatever(RawHandler):
    """Serves, fails and waits as the rng decides, until it is `calm`."""

    api_key = ApiKey.METADATA
    versions = Versions(0, 0)

    def __init__(self, rng: Random) -> None:
        self.rng, self.is_calm = rng, False
        self.gates: list[asyncio.Future[None]] = []

    def open_all(self) -> None:
        for gate in self.gates:
            if not gate.done():
                gate.set_result(None)

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        rng = self.rng
        kind = "counted" if self.is_calm else rng.choice(["counted", "parked", "plain", "raises"])
        if kind == "plain":
            return [b"plain"]
        if kind == "raises":
            raise rng.choice(ERRORS[:3])()
        if kind == "parked":
            return self._parked()
        serve = partial(self._serve, own_body(frame, offset))
        if self.is_calm:
            return OrderedAnswer(serve, 10)
        most = rng.choice([1, 500, 2_500, 9_000])
        count = rng.choice([None, self._fails, lambda: most // 3, lambda: most])
        return OrderedAnswer(serve, most, count, continues=rng.random() < 0.3)

    async def _parked(self) -> list[object]:
        await self._gate()
        if self.rng.random() < 0.5:
            raise CloseConnection("as the rng decides")
        return [b"parked"]

    async def _serve(self, body: memoryview, in_turn: OrderedAnswer) -> list[object]:
        rng = self.rng
        for _ in range(0 if self.is_calm else rng.randrange(3)):
            if rng.random() < 0.3:
                in_turn.let_go()
            if rng.random() < 0.2:
                in_turn.continues = True
            await (self._gate() if rng.random() < 0.7 else asyncio.sleep(0))
        if not self.is_calm and rng.random() < 0.2:
            raise rng.choice(ERRORS)()
        return [bytes(rng.choice([1, 10, 300_000]))]

    async def _gate(self) -> None:
        self.gates.append(asyncio.get_running_loop().create_future())
        if self.is_calm:
            self.open_all()
        await self.gates[-1]

    def _fails(self) -> int:
        raise ValueError("as the rng decides")


async def _anything(rng: Random, harness: Harness, handler: Whatever) -> None:
    clients: list[Client] = []
    for _ in range(rng.randrange(20, 60)):
        chance = rng.random()
        if chance < 0.35 or not clients:
            clients.append(await harness.connect(f"127.0.1.{rng.randrange(ADDRESSES)}"))
        elif chance < 0.75:
            client = rng.choice(clients)
            for _ in range(rng.randrange(1, 4)):
                client.send(frame(bytes(rng.choice([10, 2_000, 50_000, 200_000]))))
        elif chance < 0.85:
            client = clients.pop(rng.randrange(len(clients)))
            rng.choice([client.close, client.writer.transport.abort])()
        elif chance < 0.95 and handler.gates:
            gate = rng.choice(handler.gates)
            if not gate.done():
                gate.set_result(None)
        else:
            harness.advance(rng.choice([SWEEP_MS, SWEEP_MS, 5_000, 31_000, WAIT_MS_MAX]))
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)


async def _is_served(harness: Harness, handler: Whatever, address: str) -> None:
    client = await harness.connect(address)
    client.send(frame(bytes(60_000)))
    answer = asyncio.ensure_future(client.answer())

    def come() -> bool:
        harness.advance(1)
        handler.open_all()
        return answer.done()

    await until(come)
    await answer


def _left(harness: Harness) -> dict[str, object]:
    server = harness.server
    decoded, frames = server.wide.memory, server.memory
    counted = {
        "decoded": (decoded.used_bytes, decoded._held, decoded._queues),
        "frames": (frames.used_bytes, frames._held, frames._queues),
        "connections": (len(server._connections), dict(server._per_ip)),
        "unsent": (server.unsent.bytes,),
        "tasks": (len(server.dispatcher._tasks),),
        "slices": (len(server.slices._waiting),),
    }
    return {name: values for name, values in counted.items() if any(values)}


@pytest.mark.rounds(seconds=1)
@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_whatever_happens_wide_requests_leave_nothing_behind(seed: int) -> None:
    rng, failed = Random(seed), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    handler = Whatever(rng)
    async with serving(handler, limits=LIMITS) as harness:
        await _anything(rng, harness, handler)
        handler.is_calm = True
        handler.open_all()
        async with asyncio.timeout(PATIENCE_S):
            for n in range(ADDRESSES + 1):
                await _is_served(harness, handler, f"127.0.1.{n}")
        for client in harness.clients:
            client.writer.transport.abort()

        def is_over() -> bool:
            harness.advance(SWEEP_MS)
            handler.open_all()
            return not _left(harness)

        await until(is_over)
    assert failed == []
