"""A controllers' listener on a real socket, with a replica behind it that does as the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from broker.handlers.api_versions import Features
from broker.handlers.controllers.parts import ControllerParts
from broker.network.limits import ListenerAddress, NetworkLimits
from broker.network.server import Server
from broker.process.controllers_listener import build_controller_handlers
from metadata_topic.quorum.view import QuorumView
from metadata_topic.quorum.wire.peers import Peers
from metadata_topic.quorum.wire.rpc import WireIdentity
from metadata_topic.raft.messages import Node, Question, Reply, Request, Response
from runtime.ports import system_ports
from tests.support.worlds.waiting import PATIENCE_S

IDENTITY = WireIdentity("cluster", "CONTROLLER")
FEATURES = Features({"kraft.version": (0, 1)}, {}, -1)


class ToldReplica:
    """Notes requests; answers them with what `answer` gives, or when the test says."""

    node_id, cluster_id, leader_epoch, is_bound_to_its_broker = 1, "cluster", 3, False

    def __init__(self) -> None:
        self.view = QuorumView(epoch=3)
        self.requests: list[Request] = []
        self.parked: list[Callable[[Response], None]] = []
        self.answer: Callable[[Request], Response | None] = lambda _: None

    def receive(self, request: Request, respond: Callable[[Response], None]) -> None:
        self.requests.append(request)
        answer = self.answer(request)
        if answer is None:
            self.parked.append(respond)
        else:
            respond(answer)

    def describe(self) -> QuorumView:
        return self.view


class Asker:
    """A replica's client side."""

    def __init__(self, peers: Peers) -> None:
        self.peers = peers

    def start(
        self, port: int, request: Question, *, host: str = "127.0.0.1", timeout_ms: int = 20_000
    ) -> "asyncio.Future[Reply | None]":
        answered = asyncio.get_running_loop().create_future()
        # set_result fails where there is a second answer.
        self.peers.send(Node(-1, host, port), request, timeout_ms, answered.set_result)
        assert not answered.done(), "answered within send"
        return answered

    async def ask(self, port: int, request: Question, *, timeout_ms: int = 20_000) -> Reply:
        async with asyncio.timeout(PATIENCE_S):
            answer = await self.start(port, request, timeout_ms=timeout_ms)
        assert answer is not None
        return answer


@asynccontextmanager
async def asking(identity: WireIdentity = IDENTITY) -> AsyncIterator[Asker]:
    ports = system_ports(asyncio.get_running_loop())
    peers = Peers(identity, 9, ports)
    try:
        yield Asker(peers)
    finally:
        peers.close()
        ports.executors.shutdown()
        await asyncio.sleep(0)


@asynccontextmanager
async def listening(replica: ToldReplica) -> AsyncIterator[int]:
    """Serve `replica`; yields the port."""
    ports = system_ports(asyncio.get_running_loop())
    parts = ControllerParts(IDENTITY, replica, lambda: FEATURES)
    server = Server(build_controller_handlers(parts), NetworkLimits(), ports)
    await server.start([ListenerAddress("CONTROLLER", "127.0.0.1", 0)])
    try:
        yield server.bound["CONTROLLER"][1]
    finally:
        await server.stop(0)
        ports.executors.shutdown()
        await asyncio.sleep(0)
