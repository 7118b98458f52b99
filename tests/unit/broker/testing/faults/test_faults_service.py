"""Faults over a real connection: what a client gets, what is served, and what tests are told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.network.limits import ListenerAddress
from broker.network.registry import DecodedHandler, RawHandler, RequestContext
from broker.testing.control.commands import ControlCommands, ControlError
from broker.testing.faults.service import FaultService
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from rlm.link.messages import StoreFaultHit
from rsm_plugins.store_faults import StoreCall, StoreFault, StoreFaultKind
from tests.support.worlds.network import Client, Harness, frame, serving
from tests.support.worlds.waiting import until

IDS = {b"1" * 16: "one", b"2" * 16: "two"}


class Fetch(RawHandler):
    """Answers with every partition that is asked for; parks while its gate is closed."""

    api_key = ApiKey.FETCH
    versions = Versions(4, 18)

    def __init__(self) -> None:
        self.served: list[Any] = []
        self.gate: asyncio.Event | None = None

    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        asked, end = codec.request(ApiKey.FETCH).decode(frame, context.api_version, offset)
        assert end == len(frame)
        self.served.append(asked)
        answer = codec.response(ApiKey.FETCH).cls()
        answer.responses = [
            answer.Responses(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    answer.Responses.Partitions(partition_index=one.partition, records=b"data")
                    for one in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        parts = codec.response(ApiKey.FETCH).encode_parts(answer, context.api_version)
        return parts if self.gate is None else self._later(self.gate, parts)

    async def _later(self, gate: asyncio.Event, parts: list[object]) -> list[object]:
        await gate.wait()
        return parts


class Heartbeat(DecodedHandler):
    """Served like any small API."""

    api_key = ApiKey.HEARTBEAT
    versions = Versions(0, 4)

    def __init__(self) -> None:
        self.served = 0

    def handle(self, context: RequestContext, request: Any) -> Any:
        self.served += 1
        return codec.response(ApiKey.HEARTBEAT).cls()


class Produce(DecodedHandler):
    """Answers with nothing; is not asked where an error stands for it."""

    api_key = ApiKey.PRODUCE
    versions = Versions(3, 9)

    def __init__(self) -> None:
        self.served = 0

    def handle(self, context: RequestContext, request: Any) -> Any:
        self.served += 1
        return codec.response(ApiKey.PRODUCE).cls()


class FakeTier:
    """What faults need of a tier: it takes those of the store when it is up, and reports hits."""

    def __init__(self) -> None:
        self.store_faults: Callable[[], list[StoreFault]] = list
        self.on_store_fault: Callable[[StoreFaultHit], None] = lambda hit: None
        self.in_force: list[StoreFault] = []

    async def set_store_faults(self) -> bool:
        self.in_force = self.store_faults()
        return True

    def hit(self, fault_id: int) -> None:
        self.on_store_fault(StoreFaultHit(fault_id, StoreCall.COPY, "one"))


class World:
    """A server with faults; `run` sends a command as the control listener does."""

    def __init__(self, harness: Harness, handler: Any, tier: FakeTier | None) -> None:
        self.harness, self.handler = harness, handler
        self.server = harness.server
        self.commands = ControlCommands()
        ports = harness.ports
        FaultService(
            self.server.dispatcher,
            self.server.served,
            IDS.get,
            tier,
            ports,  # type: ignore[arg-type]
        ).register(self.commands)

    async def run(self, name: str, **arguments: Any) -> dict[str, Any]:
        return await self.commands.run(f"faults.{name}", arguments)

    @property
    def is_wrapped(self) -> bool:
        return self.server.dispatcher._wrap is not None


@asynccontextmanager
async def faulty(handler: Any, tier: FakeTier | None = None) -> AsyncIterator[World]:
    async with serving(handler) as harness:
        yield World(harness, handler, tier)


def fetch(
    version: int = 13, *, epoch: int = -1, session_id: int = 0, number: int = 0, **topics: list[int]
) -> bytes:
    cls = codec.request(ApiKey.FETCH).cls
    ids = {name: topic_id for topic_id, name in IDS.items()}
    request = cls(
        max_wait_ms=500,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            cls.Topics(
                topic=name,
                topic_id=ids[name],
                partitions=[cls.Topics.Partitions(partition=one) for one in partitions],
            )
            for name, partitions in topics.items()
        ],
    )
    body = codec.request(ApiKey.FETCH).encode(request, version)
    head = b"\0" if version >= 12 else b""
    return frame(head + body, api_key=ApiKey.FETCH, version=version, correlation_id=number)


def heartbeat(number: int = 0, *, client_id: bytes = b"c") -> bytes:
    body = codec.request(ApiKey.HEARTBEAT).encode(codec.request(ApiKey.HEARTBEAT).cls(), 0)
    return frame(body, api_key=ApiKey.HEARTBEAT, correlation_id=number, client_id=client_id)


async def answer_to_fetch(client: Client, version: int = 13) -> Any:
    _, body = await client.answer()
    offset = 1 if version >= 12 else 0
    answer, end = codec.response(ApiKey.FETCH).decode(body, version, offset)
    assert end == len(body)
    return answer


def slots(answer: Any) -> dict[tuple[str, int], tuple[int, bytes]]:
    return {
        (topic.topic or IDS[topic.topic_id], one.partition_index): (
            one.error_code,
            bytes(one.records),
        )
        for topic in answer.responses
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
async def test_of_a_mixed_request_the_topic_fails_and_the_rest_is_served(version: int) -> None:
    async with faulty(Fetch()) as world:
        client = await world.harness.connect()
        await world.run("add", api="Fetch", topic="one", error="KAFKA_STORAGE_ERROR", count=1)
        client.send(fetch(version, one=[0, 1], two=[5]))
        assert slots(await answer_to_fetch(client, version)) == {
            ("one", 0): (56, b""),
            ("one", 1): (56, b""),
            ("two", 5): (0, b"data"),
        }
        (served,) = world.handler.served
        assert served.max_wait_ms == 0, "an error is answered at once"
        assert len(served.topics) == 1
        client.send(fetch(version, one=[0]))
        assert slots(await answer_to_fetch(client, version)) == {("one", 0): (0, b"data")}


async def test_a_request_of_nothing_else_is_not_served() -> None:
    async with faulty(Fetch()) as world:
        client = await world.harness.connect()
        await world.run("add", api="Fetch", topic="one", partition=1, error=6)
        client.send(fetch(one=[1]))
        assert slots(await answer_to_fetch(client)) == {("one", 1): (6, b"")}
        assert world.handler.served == []
        client.send(fetch(two=[1]))
        assert slots(await answer_to_fetch(client)) == {("two", 1): (0, b"data")}


async def test_a_fetch_session_ends_while_it_would_hide_the_topic() -> None:
    async with faulty(Fetch()) as world:
        client = await world.harness.connect()
        fault = await world.run("add", api="Fetch", topic="one", delay_ms=1)
        client.send(fetch(epoch=3, session_id=9))
        answer = await answer_to_fetch(client)
        assert (answer.error_code, answer.session_id) == (70, 0)
        client.send(fetch(epoch=0, two=[0]))
        assert slots(await answer_to_fetch(client)) == {("two", 0): (0, b"data")}
        (served,) = world.handler.served
        assert (served.session_id, served.session_epoch) == (0, -1)
        found = await world.run("remove", id=fault["id"])
        assert found["hits"] == 0, "to ask for all partitions is no hit"
        client.send(fetch(epoch=3, session_id=9))
        await answer_to_fetch(client)
        assert world.handler.served[1].session_epoch == 3, "sessions are back"


async def test_a_session_continues_where_no_fault_needs_to_know_topics() -> None:
    async with faulty(Fetch()) as world:
        client = await world.harness.connect()
        await world.run("add", api="Fetch", cut="after_serving", count=1)
        client.send(fetch(epoch=3, session_id=9))
        assert await client.is_closed()
        assert world.handler.served[0].session_epoch == 3


@pytest.mark.parametrize("acks", [0, 1])
async def test_a_producer_with_acks_0_learns_of_an_error_by_a_closed_connection(
    acks: int,
) -> None:
    async with faulty(Produce()) as world:
        client = await world.harness.connect()
        await world.run("add", api="Produce", error="KAFKA_STORAGE_ERROR")
        cls = codec.request(ApiKey.PRODUCE).cls
        parts = [cls.TopicData.PartitionData(index=0, records=b"")]
        asked = cls(acks=acks, topic_data=[cls.TopicData(name="one", partition_data=parts)])
        body = b"\0" + codec.request(ApiKey.PRODUCE).encode(asked, 9)
        client.send(frame(body, api_key=ApiKey.PRODUCE, version=9))
        if acks:
            _, answer = await client.answer()
            value, _ = codec.response(ApiKey.PRODUCE).decode(answer, 9, 1)
            assert value.responses[0].partition_responses[0].error_code == 56
        else:
            assert await client.is_closed()
        assert world.handler.served == 0


@pytest.mark.parametrize(
    ("error", "code", "version"), [("UNSUPPORTED_VERSION", 35, 0), ("INVALID_REQUEST", 42, 3)]
)
async def test_an_unsupported_version_is_answered_in_one_every_client_reads(
    error: str, code: int, version: int
) -> None:
    async with faulty(Heartbeat()) as world:
        client = await world.harness.connect()
        await world.run("add", api="ApiVersions", error=error)
        message = codec.request(ApiKey.API_VERSIONS)
        asked = message.cls(client_software_name="n", client_software_version="1")
        body = b"\0" + message.encode(asked, 3)
        client.send(frame(body, api_key=ApiKey.API_VERSIONS, version=3))
        _, answer = await client.answer()
        value, end = codec.response(ApiKey.API_VERSIONS).decode(answer, version, 0)
        assert (value.error_code, end) == (code, len(answer))


async def test_a_cut_before_serving_serves_nothing_and_answers_what_came_before() -> None:
    async with faulty(Heartbeat()) as world:
        client = await world.harness.connect()
        await world.run("add", api="Heartbeat", client_id="d", cut="before_serving")
        client.send(heartbeat(1) + heartbeat(2, client_id=b"d") + heartbeat(3))
        assert (await client.answer())[0] == 1
        assert await client.is_closed()
        assert world.handler.served == 1


async def test_a_cut_after_serving_loses_the_answer_alone() -> None:
    async with faulty(Heartbeat()) as world:
        client = await world.harness.connect()
        await world.run("add", cut="after_serving", count=1)
        client.send(heartbeat(1))
        assert await client.is_closed()
        assert world.handler.served == 1
        again = await world.harness.connect()
        again.send(heartbeat(2))
        assert (await again.answer())[0] == 2


async def test_an_answer_that_has_to_wait_is_lost_when_it_is_there() -> None:
    handler = Fetch()
    handler.gate = asyncio.Event()
    async with faulty(handler) as world:
        client = await world.harness.connect()
        await world.run("add", api="Fetch", cut="after_serving")
        client.send(fetch(one=[0]))
        await until(lambda: len(handler.served) == 1)
        handler.gate.set()
        assert await client.is_closed()


async def test_a_delayed_request_is_served_later_and_before_what_is_behind_it() -> None:
    async with faulty(Heartbeat()) as world:
        client, other = await world.harness.connect(), await world.harness.connect()
        fault = await world.run("add", api="Heartbeat", client_id="c", delay_ms=300, count=1)
        client.send(heartbeat(1) + heartbeat(2))
        assert (await world.run("wait", id=fault["id"], timeout_ms=1_000))["reached"]
        other.send(heartbeat(3, client_id=b"d"))
        assert (await other.answer())[0] == 3
        assert world.handler.served == 1
        world.harness.advance(299)
        await asyncio.sleep(0)
        assert world.handler.served == 1
        world.harness.advance(1)
        assert [(await client.answer())[0] for _ in range(2)] == [1, 2]


async def test_what_delays_add_up_to_ends_with_the_faults() -> None:
    async with faulty(Heartbeat()) as world:
        client = await world.harness.connect()
        first, second, _ = [await world.run("add", delay_ms=300) for _ in range(3)]
        client.send(heartbeat(1))
        await world.run("wait", id=first["id"], timeout_ms=1_000)
        await world.run("remove", id=second["id"])
        world.harness.advance(300)
        await asyncio.sleep(0)
        world.harness.advance(299)
        await asyncio.sleep(0)
        assert world.handler.served == 0, "the third one delays it"
        await world.run("clear")
        assert (await client.answer())[0] == 1, "without the last millisecond"
        assert world.handler.served == 1


async def test_a_fault_of_one_client_ends_no_session_of_others() -> None:
    async with faulty(Fetch()) as world:
        client = await world.harness.connect()
        for what in ({"topic": "one", "delay_ms": 1}, {"error": 6}):
            await world.run("add", api="Fetch", client_id="another", **what)
        client.send(fetch(epoch=3, session_id=9))
        assert (await answer_to_fetch(client)).error_code == 0
        assert world.handler.served[0].session_epoch == 3


async def test_a_client_that_leaves_ends_its_delay() -> None:
    async with faulty(Heartbeat()) as world:
        client = await world.harness.connect()
        await world.run("add", delay_ms=300)
        client.send(heartbeat(1))
        await until(lambda: bool(world.server._connections))
        (connection,) = world.server._connections
        await until(lambda: bool(connection._unanswered.slots))
        connection.close("test")
        world.harness.advance(300)
        await asyncio.sleep(0)
        assert world.handler.served == 0


async def test_requests_pay_nothing_while_no_fault_is_in_force() -> None:
    async with faulty(Heartbeat()) as world:
        client = await world.harness.connect()

        async def served_by() -> Any:
            client.send(heartbeat(1))
            await client.answer()
            return world.server.dispatcher._routes[ApiKey.HEARTBEAT, 0].serve.__qualname__

        plain = await served_by()
        fault = await world.run("add", api="Heartbeat", delay_ms=1, client_id="other")
        assert (await served_by()) != plain
        await world.run("remove", id=fault["id"])
        assert not world.is_wrapped
        assert (await served_by()) == plain
        await world.run("add", api="Heartbeat", error="NOT_COORDINATOR", count=1)
        client.send(heartbeat(1))
        await client.answer()
        assert not world.is_wrapped, "its last hit ended it"
        assert (await served_by()) == plain
        await world.run("add", api="ApiVersions", delay_ms=1)
        assert (await served_by()) == plain, "of another API"


async def test_waiting_ends_by_hits_by_time_or_by_removal() -> None:
    async with faulty(Heartbeat()) as world:
        client = await world.harness.connect()
        fault = await world.run("add", api="Heartbeat", error="NOT_COORDINATOR")
        number = fault["id"]
        waits = [
            asyncio.ensure_future(world.run("wait", id=number, hits=hits, timeout_ms=ms))
            for hits, ms in ((2, 60_000), (3, 500), (3, 60_000))
        ]
        for _ in range(2):
            client.send(heartbeat(1))
            await client.answer()
        assert (await waits[0])["reached"] is True
        there = await world.run("wait", id=number, hits=2, timeout_ms=60_000)
        assert there["reached"] is True, "at once: the clock stands still here"
        world.harness.advance(500)
        assert (await waits[1])["reached"] is False
        removed = await world.run("remove", id=number)
        assert (removed["hits"], (await waits[2])["reached"]) == (2, False)
        with pytest.raises(ControlError, match="no such fault"):
            await world.run("wait", id=number)


async def test_what_is_listed_can_be_added_again() -> None:
    async with faulty(Heartbeat()) as world:
        said = {"api": "Heartbeat", "error": "NOT_COORDINATOR", "count": 4}
        await world.run("add", **said)
        client = await world.harness.connect()
        client.send(heartbeat(1))
        await client.answer()
        (listed,) = (await world.run("list"))["faults"]
        (hit,) = listed.pop("last_hits")
        assert (hit["api"], hit["version"], hit["client_id"]) == ("Heartbeat", 0, "c")
        assert listed == {**said, "id": 1, "hits": 1, "over": False}
        assert [one["id"] for one in (await world.run("clear"))["removed"]] == [1]
        assert (await world.run("list"))["faults"] == []


async def test_wrong_arguments_are_the_callers_fault() -> None:
    async with faulty(Heartbeat()) as world:
        for name, arguments in (
            ("add", {"api": "Vote", "delay_ms": 1}),
            ("add_store", {"kind": "hang"}),
            ("remove", {"id": 99}),
            ("remove", {}),
            ("wait", {"id": "1"}),
        ):
            with pytest.raises(ControlError):
                await world.run(name, **arguments)


async def test_a_store_fault_is_told_to_the_tier_and_its_hits_are_counted_here() -> None:
    tier = FakeTier()
    async with faulty(Heartbeat(), tier) as world:
        fault = await world.run("add_store", kind="refuse", call="copy", count=3)
        assert tier.in_force == [
            StoreFault(id=fault["id"], kind=StoreFaultKind.REFUSE, call=StoreCall.COPY, count=3)
        ]
        wait = asyncio.ensure_future(world.run("wait", id=fault["id"], hits=2, timeout_ms=60_000))
        await asyncio.sleep(0)
        tier.hit(fault["id"])
        tier.hit(fault["id"])
        tier.hit(99)  # of one that was removed
        found = await wait
        assert (found["hits"], found["over"], found["reached"]) == (2, False, True)
        assert [hit["call"] for hit in found["last_hits"]] == ["copy", "copy"]
        assert not world.is_wrapped, "requests do not pay for it"


async def test_the_next_tier_is_told_what_is_left() -> None:
    tier = FakeTier()
    async with faulty(Heartbeat(), tier) as world:
        counted = await world.run("add_store", kind="refuse", count=3)
        for_ever = await world.run("add_store", kind="hang")
        tier.hit(counted["id"])
        tier.hit(counted["id"])
        assert {one.id: one.count for one in tier.store_faults()} == {
            counted["id"]: 1,
            for_ever["id"]: None,
        }
        tier.hit(counted["id"])
        assert [one.id for one in tier.store_faults()] == [for_ever["id"]]
        await world.run("clear")
        assert tier.in_force == []


async def test_what_comes_by_the_listener_of_the_brokers_is_spared() -> None:
    async with serving(Heartbeat()) as harness:
        server, commands = harness.server, ControlCommands()
        FaultService(
            server.dispatcher,
            server.served,
            IDS.get,
            None,
            harness.ports,
            "REPLICATION",  # type: ignore[arg-type]
        ).register(commands)
        await server.start([ListenerAddress("REPLICATION", "127.0.0.1", 0)])
        await commands.run("faults.add", {"cut": "before_serving"})
        client = await harness.connect()
        client.send(heartbeat())
        assert await client.is_closed()
        server.bound["PLAINTEXT"] = server.bound["REPLICATION"]
        broker = await harness.connect()
        broker.send(heartbeat(7))
        assert (await broker.answer())[0] == 7
