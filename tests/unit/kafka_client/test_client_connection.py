"""The connection to one node over real sockets: no request is lost, whatever the node does."""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafka_client.connection import NAMES_POOL, POOL, Connection, Connections
from kafka_client.exchange import ConnectionSettings
from kafka_client.requests import ClientError, NoAnswerError, NotSentError, UnreadableAnswerError
from kafka_client.transport import LoopNetwork
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from runtime.executors import InlinePool, ThreadPool
from runtime.ports import Ports, system_ports
from tests.support.brokers.process import free_ports
from tests.support.kafka_client.node import Serve, asked_by, framed, serving, silent_host
from tests.support.worlds.waiting import PATIENCE_S, until

APIS = {ApiKey.DESCRIBE_CLUSTER: (0, 1)}


def cluster(_: int, version: int, number: int, *, nodes: int = 0) -> bytes:
    codec = response(ApiKey.DESCRIBE_CLUSTER)
    brokers = [codec.cls.Brokers(broker_id=one, host="x" * 100) for one in range(nodes)]
    body = codec.encode(codec.cls(cluster_id="ours", brokers=brokers), version)
    return framed(struct.pack(">i", number) + b"\0" + body)


def silent(*_: int) -> None:
    return None


def in_turn(*serve: Serve) -> Serve:
    """Each serves one request, the last one all that follow."""
    left = list(serve)

    def next_one(*asked: int) -> bytes | None:
        return (left.pop(0) if len(left) > 1 else left[0])(*asked)

    return next_one


class Addresses(InlinePool):
    """Looks every name up itself."""

    def __init__(self, *found: str) -> None:
        super().__init__()
        self.found = found

    async def run(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        port = args[1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (one, port)) for one in self.found]


class Client:
    def __init__(self, ports: Ports, names: InlinePool, **settings: Any) -> None:
        self.ports = ports
        network = LoopNetwork(names, ports.isolation)
        self.connections = Connections(
            ConnectionSettings(client_id="c", **settings), ports, network
        )

    def to(self, port: int, host: str = "127.0.0.1") -> Connection:
        return self.connections.to((host, port))

    async def ask(self, port: int, host: str = "127.0.0.1", timeout_ms: int = 20_000) -> Any:
        question = request(ApiKey.DESCRIBE_CLUSTER).cls()
        async with asyncio.timeout(PATIENCE_S):
            answer = await self.to(port, host).request(
                ApiKey.DESCRIBE_CLUSTER, question, timeout_ms=timeout_ms
            )
        return answer.cluster_id

    def start(self, port: int, timeout_ms: int = 20_000) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.ask(port, timeout_ms=timeout_ms))


@asynccontextmanager
async def asking(names: InlinePool | None = None, **settings: Any) -> AsyncIterator[Client]:
    ports = system_ports(asyncio.get_running_loop())
    client = Client(ports, names or Addresses("127.0.0.1"), **settings)
    try:
        yield client
    finally:
        client.connections.close()
        ports.executors.shutdown()
        await asyncio.sleep(0)


async def ended(*waiting: "asyncio.Task[Any]") -> list[Any]:
    return await asyncio.gather(*waiting, return_exceptions=True)


async def test_all_requests_to_an_address_share_a_connection() -> None:
    async with serving(cluster, APIS) as node, asking() as client:
        for _ in range(3):
            assert await client.ask(node.port) == "ours"
        assert await ended(*(client.start(node.port) for _ in range(20))) == ["ours"] * 20
        assert (node.connections, len(node.versions)) == (1, 23)
        connected = client.to(node.port)._open._transport.get_extra_info("socket")  # type: ignore[union-attr]
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        client.connections.close()
        await until(lambda: node.ended == 1)


async def test_no_connection_stands_while_the_process_is_cut_off() -> None:
    async with serving(in_turn(cluster, silent), APIS) as node, asking() as client:
        assert await client.ask(node.port) == "ours"
        waiting = client.start(node.port)
        await until(lambda: len(node.versions) == 2)  # the node has the question
        client.ports.isolation.cut()
        assert [type(one) for one in await ended(waiting)] == [NoAnswerError]
        await until(lambda: node.ended == 1)
        assert not client.ports.isolation._ends, "it keeps no connection that has ended"
        with pytest.raises(NotSentError, match="cut off by a test"):
            await client.ask(node.port)
        assert node.connections == 1


async def test_what_begins_to_connect_before_a_cut_ends_with_it() -> None:
    class CutMeanwhile(Addresses):
        async def run(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            client.ports.isolation.cut()
            return await super().run(fn, *args, **kwargs)

    async with serving(cluster, APIS) as node, asking(CutMeanwhile("127.0.0.1")) as client:
        with pytest.raises(NotSentError):
            await client.ask(node.port, "name")
        client.ports.isolation.heal()
        assert await client.ask(node.port) == "ours"


async def test_of_a_names_addresses_each_is_tried() -> None:
    """`localhost` is two addresses, and a listener may have one of them."""
    async with serving(cluster, APIS) as node:
        async with asking(Addresses("127.0.0.2", "127.0.0.1")) as client:
            assert await client.ask(node.port, "name") == "ours"
        async with asking(Addresses("127.0.0.2", "127.0.0.3")) as client:
            with pytest.raises(NotSentError, match="Connect call failed"):
                await client.ask(node.port, "name")
        async with asking(Addresses()) as client:
            with pytest.raises(NotSentError, match="name has no address"):
                await client.ask(node.port, "name")


async def test_a_silent_address_leaves_time_for_the_next_of_its_name() -> None:
    async with (
        serving(cluster, APIS) as node,
        asking(Addresses("127.0.0.2", "127.0.0.1")) as client,
    ):
        with silent_host("127.0.0.2", node.port):
            assert await client.ask(node.port, "name", timeout_ms=8_000) == "ours"


async def test_a_name_without_a_pool_to_look_it_up_cannot_be_reached() -> None:
    names = ThreadPool("names", 1)
    names.shutdown()
    async with asking(names) as client:  # type: ignore[arg-type]
        for host in ("localhost", "x" * 70 + ".invalid"):
            with pytest.raises(NotSentError):
                await client.ask(1, host)


async def test_only_who_never_answered_may_be_no_kafka_listener() -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked_by(reader)
        writer.close()

    async with await asyncio.start_server(end, "127.0.0.1", 0) as server, asking() as client:
        with pytest.raises(NotSentError, match=r"was closed; is this a Kafka listener\?$"):
            await client.ask(server.sockets[0].getsockname()[1])


async def test_after_a_broken_connection_the_next_request_opens_a_new_one() -> None:
    left = [b"", b"", None]

    def serve(*asked: int) -> bytes:
        one = left.pop(0) if left else None
        return cluster(*asked) if one is None else one

    async with serving(serve, APIS) as node, asking() as client:
        for _ in range(2):
            with pytest.raises(NoAnswerError, match=r"was closed$"):
                await client.ask(node.port)
        assert await client.ask(node.port) == "ours"
        assert node.connections == 3


async def test_half_an_answer_of_the_last_connection_is_no_part_of_the_next() -> None:
    """The versions that the node serves are asked again, too: it may be another program."""
    apis = {ApiKey.DESCRIBE_CLUSTER: (0, 0)}
    is_first = True

    def serve(key: int, version: int, number: int) -> bytes:
        nonlocal is_first
        whole, was_first, is_first = cluster(key, version, number), is_first, False
        return whole[: len(whole) // 2] if was_first else whole

    async with serving(serve, apis) as node, asking() as client:
        waiting = client.start(node.port, timeout_ms=60_000)
        await until(lambda: len(node.versions) == 1)
        client.to(node.port)._open.lost(ConnectionError("for the test"))  # type: ignore[union-attr]
        apis[ApiKey.DESCRIBE_CLUSTER] = (1, 2)
        assert await client.ask(node.port) == "ours"
        assert isinstance((await ended(waiting))[0], NoAnswerError)
        assert node.versions == [0, 2]


@pytest.mark.parametrize("end", ["closed", "cancelled"])
async def test_an_end_is_that_of_all_requests(end: str) -> None:
    async with serving(silent, APIS) as node, asking() as client:
        waiting = [client.start(node.port, timeout_ms=60_000) for _ in range(2)]
        await until(lambda: len(node.versions) == 2)
        if end == "closed":
            client.connections.close()
        else:
            waiting[0].cancel()
            await asyncio.wait(waiting[:1])
            assert not waiting[1].done()
            client.connections.close()
        found = await ended(*waiting)
        kinds = [asyncio.CancelledError if end == "cancelled" else NoAnswerError, NoAnswerError]
        assert [type(one) for one in found[:2]] == kinds
        if end == "closed":
            with pytest.raises(NotSentError, match="closed"):
                await client.ask(node.port)


async def test_requests_that_wait_for_the_greeting_end_unsent() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asking(connect_timeout_ms=50) as client:
        found = await ended(*(client.start(port, timeout_ms=60_000) for _ in range(2)))
        assert [(type(one), str(one)) for one in found] == [
            (NotSentError, "not connected in 50 ms")
        ] * 2
    (dead,) = free_ports(1)
    async with asking() as client:
        with pytest.raises(NotSentError, match="Connect call failed"):
            await client.ask(dead)


async def test_a_silent_node_costs_its_own_requests_their_time_alone() -> None:
    async with (
        serving(silent, APIS) as mute,
        serving(cluster, APIS) as node,
        asking() as client,
    ):
        waiting = client.start(mute.port, timeout_ms=60_000)
        for _ in range(5):
            assert await client.ask(node.port) == "ours"
        assert not waiting.done()
        client.connections.close()
        assert isinstance((await ended(waiting))[0], NoAnswerError)


async def test_the_loss_of_the_last_connection_is_not_that_of_the_next() -> None:
    async with serving(in_turn(silent, cluster), APIS) as node, asking() as client:
        waiting = client.start(node.port)
        await until(lambda: len(node.versions) == 1)
        old = client.to(node.port)._open
        assert old is not None
        old.end(ConnectionError("for the test"))  # the loop hears of the loss in its next turn
        assert await client.ask(node.port) == "ours"
        old.lost(ConnectionError("late"))
        old.received(4)
        assert await client.ask(node.port) == "ours"
        assert isinstance((await ended(waiting))[0], NoAnswerError)
        assert node.connections == 2


async def test_an_idle_connection_is_closed_and_opened_again_when_needed() -> None:
    async with serving(cluster, APIS) as node, asking(idle_ms_max=1) as client:
        for number in (1, 2):
            assert await client.ask(node.port) == "ours"
            await until(lambda: not client.to(node.port).is_in_use)
            assert node.connections == number


async def test_of_many_addresses_those_in_use_are_not_forgotten() -> None:
    async with serving(silent, APIS) as node, asking() as client:
        waiting = client.start(node.port, timeout_ms=60_000)
        await until(lambda: len(node.versions) == 1)
        for dead in free_ports(40):
            with pytest.raises(ClientError):
                await client.ask(dead)
        assert len(client.connections._by_address) <= 32
        client.connections.close()
        assert isinstance((await ended(waiting))[0], NoAnswerError)


# -- long answers


def long(key: int, version: int, number: int) -> bytes:
    return cluster(key, version, number, nodes=1_000)


def unreadable(_: int, __: int, number: int) -> bytes:
    return framed(struct.pack(">i", number) + b"\0" + b"\xff" * 100_000)


async def test_a_long_answer_is_decoded_by_a_thread_and_ends_its_request() -> None:
    serve = in_turn(long, unreadable, cluster)
    async with serving(serve, APIS) as node, asking() as client:
        assert await client.ask(node.port) == "ours"
        assert client.ports.executors.waiting() == {POOL: 0}, "no thread has decoded it"
        with pytest.raises(UnreadableAnswerError):
            await client.ask(node.port)
        assert await client.ask(node.port) == "ours"
        assert node.connections == 1


async def test_a_long_answer_after_the_end_of_all_threads_ends_its_request() -> None:
    async with serving(long, APIS) as node, asking() as client:
        client.ports.executors.pool(POOL, 1).shutdown()
        with pytest.raises(NoAnswerError, match="threads"):
            await client.ask(node.port)


async def test_a_long_answer_whose_thread_never_came_ends_its_request() -> None:
    """The pool is shut down with answers that wait for a thread."""
    may_end = threading.Event()
    async with serving(long, APIS) as node, asking() as client:
        pool: Any = client.ports.executors.pool(POOL, 1)
        held_up = pool.submit(may_end.wait, PATIENCE_S)
        waiting = client.start(node.port)
        await until(lambda: bool(pool.waiting == 1))
        pool.shutdown(wait=False)
        may_end.set()
        assert isinstance((await ended(waiting))[0], NoAnswerError)
        held_up.result(PATIENCE_S)


async def test_names_that_no_server_answers_for_hold_up_no_long_answer() -> None:
    may_end = threading.Event()
    async with serving(long, APIS) as node, asking() as client:
        client.connections._network = None  # its own
        names: Any = client.ports.executors.pool(NAMES_POOL, 1)
        held_up = names.submit(may_end.wait, PATIENCE_S)
        nameless = asyncio.create_task(client.ask(node.port, "localhost"))
        await until(lambda: bool(names.waiting == 1))
        assert await client.ask(node.port) == "ours"
        may_end.set()
        held_up.result(PATIENCE_S)
        assert await nameless == "ours"


async def test_a_raw_answer_to_a_cancelled_request_holds_nothing() -> None:
    async with serving(cluster, APIS) as node, asking() as client:
        connection = client.to(node.port)
        question = request(ApiKey.DESCRIBE_CLUSTER).cls()
        asked = connection.request(ApiKey.DESCRIBE_CLUSTER, question, read=None, timeout_ms=20_000)
        waiting = asyncio.create_task(asked)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await client.ask(node.port) == "ours"
        assert connection.held_bytes == 0
