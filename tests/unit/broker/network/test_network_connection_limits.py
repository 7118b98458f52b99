"""How many connections are taken: of an address, of all, and of the tier's above that."""

from broker.network.limits import NetworkLimits
from broker.network.registry import RequestContext
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


async def test_few_wait_above_the_limit_for_their_first_request() -> None:
    exempt = frozenset({"secret"})
    limits = NetworkLimits(connections_max=1, exempt_client_ids=exempt, provisional_max=2)
    async with serving(limits=limits) as harness:
        first = await harness.connect()
        await until(lambda: len(harness.server._connections) == 1)
        waiting = [await harness.connect() for _ in range(2)]
        await until(lambda: len(harness.server._connections) == 3)
        assert await (await harness.connect()).is_closed()
        for client in waiting:  # who leaves without a word makes room for another
            client.close()
        await until(lambda: len(harness.server._connections) == 1)
        tier = await harness.connect()
        tier.send(frame(b"t", client_id=b"secret"))
        assert await tier.answer() == (0, b"t")
        first.close()
        tier.close()


async def test_the_tiers_clients_pass_the_limit_and_others_do_not() -> None:
    served: list[str] = []

    def raw(context: RequestContext, body: bytes) -> list[object]:
        served.append(context.client_id)
        return [body]

    limits = NetworkLimits(connections_per_ip_max=1, exempt_client_ids=frozenset({"secret"}))
    async with serving(raw, limits=limits) as harness:
        first = await harness.connect()
        first.send(frame(client_id=b"first"))
        await first.answer()
        tier = await harness.connect()
        tier.send(frame(b"t", client_id=b"secret"))
        assert await tier.answer() == (0, b"t")
        other = await harness.connect()
        other.send(frame(client_id=b"guess"))
        assert await other.is_closed()
        silent = await harness.connect()
        await until(lambda: len(harness.server._connections) == 3)
        harness.advance(3_000)
        assert await silent.is_closed()
        assert served == ["first", "secret"]
        first.close()
        tier.close()


async def test_a_client_of_the_tier_that_has_shown_itself_makes_room_for_the_next() -> None:
    exempt = frozenset({"secret"})
    limits = NetworkLimits(connections_max=1, exempt_client_ids=exempt, provisional_max=1)
    async with serving(limits=limits) as harness:
        await harness.connect()
        await until(lambda: len(harness.server._connections) == 1)
        for count in (2, 3, 4):
            tier = await harness.connect()
            tier.send(frame(b"t", client_id=b"secret"))
            assert await tier.answer() == (0, b"t")
            assert len(harness.server._connections) == count
