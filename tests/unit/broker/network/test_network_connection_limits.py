"""How many connections are taken: of an address, and of all."""

import pytest

from broker.network.connection import Connection
from broker.network.limits import NetworkLimits
from broker.network.server import SWEEP_MS
from tests.support.worlds.network import frame, serving
from tests.support.worlds.waiting import until


async def test_connections_above_the_limit_of_an_address_are_closed() -> None:
    limits = NetworkLimits(connections_per_ip_max=3)
    async with serving(limits=limits) as harness:
        clients = [await harness.connect() for _ in range(3)]
        await until(lambda: len(harness.server._connections) == 3)
        assert await (await harness.connect()).is_closed()
        clients.pop().close()
        await until(lambda: len(harness.server._connections) == 2)
        again = await harness.connect()
        again.send(frame(b"ok"))
        assert await again.answer() == (0, b"ok")
        for client in [*clients, again]:
            client.close()


async def test_connections_of_all_addresses_together_have_a_limit() -> None:
    async with serving(limits=NetworkLimits(connections_max=2)) as harness:
        clients = [await harness.connect() for _ in range(2)]
        await until(lambda: len(harness.server._connections) == 2)
        assert await (await harness.connect()).is_closed()
        for client in clients:
            client.close()
        await until(lambda: not harness.server._connections)
        assert not harness.server._per_ip, "an address without a connection costs nothing"


async def test_a_failing_deadline_check_closes_one_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    check = Connection.check_deadlines

    def look(connection: Connection, now_ms: int) -> None:
        if connection.address == "127.0.1.1":
            raise ValueError("as the test wants it")
        check(connection, now_ms)

    monkeypatch.setattr(Connection, "check_deadlines", look)
    async with serving(limits=NetworkLimits(idle_ms_max=10_000)) as harness:
        broken = await harness.connect("127.0.1.1")
        idle = [await harness.connect() for _ in range(5)]
        await until(lambda: len(harness.server._connections) == 6)
        harness.advance(SWEEP_MS)
        assert await broken.is_closed()
        assert len(harness.server._connections) == 5
        harness.advance(10_000)
        for each in idle:
            assert await each.is_closed()
    failed = [one for one in caplog.records if "connection failed" in one.message]
    assert [one.levelname for one in failed] == ["ERROR"]
