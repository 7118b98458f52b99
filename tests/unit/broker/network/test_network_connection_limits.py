"""How many connections are taken: of an address, and of all."""

from broker.network.limits import NetworkLimits
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
