"""A broker asks the active controller, wherever it is; what is not known is never success."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.forwarded import Forwarded
from broker.network.registry import DecodedHandler, RequestContext
from broker.node.active_controller import ActiveController
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, response
from kafka_protocol.wire.schema import Versions
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.quorum.view import QuorumView
from metadata_topic.raft.messages import Node
from runtime.ports import system_ports
from tests.support.brokers.process import free_ports

ME, OTHER = 1, 2
VERSION = 7
Serve = Callable[[asyncio.StreamReader], Awaitable[None]]


class Known:
    """What this node knows of the quorum, as the test says."""

    def __init__(self, view: QuorumView, *, is_leader: bool = False) -> None:
        self.node_id, self.view, self.is_leader = ME, view, is_leader

    def describe(self) -> QuorumView:
        return self.view


class Here(DecodedHandler):
    """Serves CreateTopics in this process; counts how often."""

    api_key, versions = ApiKey.CREATE_TOPICS, Versions(2, 7)
    served = 0

    def handle(self, context: RequestContext, request: Any) -> Any:
        self.served += 1
        return response(ApiKey.CREATE_TOPICS).cls()

    refuse = CreateTopicsHandler.refuse


@asynccontextmanager
async def asked(view: QuorumView, *, own_port: int = 1) -> AsyncIterator[ActiveController]:
    ports = system_ports(asyncio.get_running_loop())
    try:
        yield ActiveController(
            Known(view), ("127.0.0.1", own_port), ports.executors.pool("names", 1)
        )
    finally:
        ports.executors.shutdown()


@asynccontextmanager
async def served_by(serve: Serve) -> AsyncIterator[int]:
    over: list[asyncio.Event] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over.append(asyncio.Event())
        await serve(reader)
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        over[-1].set()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for one in over:
            await one.wait()


async def hangs_up(reader: asyncio.StreamReader) -> None:
    await reader.readexactly(4)


async def says_nothing(reader: asyncio.StreamReader) -> None:
    await reader.read()


def led_at(port: int) -> QuorumView:
    return QuorumView(epoch=3, leader_id=OTHER, leader=Node(OTHER, "127.0.0.1", port))


def creating(timeout_ms: int = 1) -> Any:
    cls = message("CreateTopicsRequest").cls
    topic = cls.Topics(name="t", num_partitions=1, replication_factor=1)
    return cls(topics=[topic], timeout_ms=timeout_ms)


async def create(active: ActiveController) -> tuple[int, Here]:
    here = Here()
    context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
    answer = await Forwarded(here, active).handle(context, creating())
    (topic,) = answer.topics
    return topic.error_code, here


async def test_nobody_is_known() -> None:
    async with asked(QuorumView(epoch=3)) as active:
        with pytest.raises(NotControllerError, match="no active controller is known"):
            await active.ask(ApiKey.CREATE_TOPICS, VERSION, creating(), timeout_ms=1_000)
        code, here = await create(active)
    assert (code, here.served) == (ErrorCode.NOT_CONTROLLER, 0)


async def test_a_controller_that_cannot_be_reached_was_not_asked() -> None:
    (port,) = free_ports(1)
    async with asked(led_at(port)) as active:
        code, here = await create(active)
    assert (code, here.served) == (ErrorCode.NOT_CONTROLLER, 0)


@pytest.mark.parametrize("serve", [hangs_up, says_nothing])
async def test_a_change_without_an_answer_may_be_done_and_is_done_nowhere_else(
    serve: Serve,
) -> None:
    async with served_by(serve) as port, asked(led_at(port)) as active:
        code, here = await create(active)
    assert (code, here.served) == (ErrorCode.REQUEST_TIMED_OUT, 0)


async def test_where_this_node_leads_it_is_served_here() -> None:
    async with asked(QuorumView(epoch=3, leader_id=ME, is_leader=True)) as active:
        known: Any = active._node
        known.is_leader = True
        here = Here()
        context = RequestContext(19, VERSION, 1, "", "PLAINTEXT", ("127.0.0.1", 1), 0)
        Forwarded(here, active).handle(context, creating())
    assert here.served == 1
