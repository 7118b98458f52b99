"""One node of a simulated cluster: the product's metadata node, a controller, a broker, or both."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker.config.live_config import LiveConfig
from broker.handlers.controllers.changes import ChangeParts, creation_without_broker
from broker.network.dispatch import Dispatcher
from broker.network.server import Server
from broker.node.endpoints import network_limits
from broker.process.controller_registration import register_in_metadata
from broker.process.controllers_listener import controllers_table
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import KafkaError
from metadata_topic.controller.heartbeats import Heartbeat
from metadata_topic.image.model import Endpoint
from metadata_topic.quorum.config import NodeIdentity
from metadata_topic.quorum.metadata_loader import Applied
from metadata_topic.quorum.node import MetadataNode, NodeSettings
from metadata_topic.quorum.replica import MetadataReplica
from metadata_topic.quorum.start.open_replica import OpenReplica
from metadata_topic.quorum.start.quorum_start import QuorumSettings
from metadata_topic.raft.messages import NOBODY, Node, Request, Response
from runtime.ports import Ports
from tests.support.nodes_world.broker import BrokerSide
from tests.support.nodes_world.connections import Link, NodeNetwork
from tests.support.nodes_world.plan import config_of
from tests.support.quorum_world.net import Route
from tests.support.quorum_world.node import NodeProcess, QuorumNode
from tests.support.quorum_world.plan import CLUSTER_ID, HOME, PORT, address_of
from tests.support.sim.loop import LoopProcess
from tests.support.sim.memory_disk import ProcessEnded

if TYPE_CHECKING:
    from tests.support.nodes_world.world import NodesWorld


class ClusterProcess(LoopProcess, NodeProcess):
    """A life of a node, with an event loop."""


class ClusterNode(QuorumNode):
    """See the module.

    Attributes:
        metadata: of this life.
        broker: the broker's side of this life; None for a node without one.
        listening: name and dispatcher of each open listener, by port.
        links: connections that it has opened or taken.
        is_dark: its machine lost power: nobody hears that its connections are gone.
    """

    process_type = ClusterProcess
    world: "NodesWorld"
    process: ClusterProcess | None

    def __init__(self, world: "NodesWorld", node_id: int) -> None:
        plan = world.plan
        self.is_controller = node_id not in plan.observers
        self.is_broker = node_id in plan.broker_ids
        roles = [name for name, has in (("broker", self.is_broker),
                                        ("controller", self.is_controller)) if has]  # fmt: skip
        self.settings_file = config_of(
            node_id, ",".join(roles), plan.session_ms, plan.node_settings
        )
        self.broker: BrokerSide | None = None
        self.links: dict[Link, None] = {}
        self.listening: dict[int, tuple[str, Dispatcher]] = {}
        self.is_dark = False
        super().__init__(world, node_id)

    # -- a life

    def _forget(self) -> None:
        super()._forget()
        self._asked: dict[int, int] = {}

    def _opens(self, ports: Ports) -> OpenReplica:
        plan = self.world.plan
        static = tuple(self.settings.values())
        here = address_of(self.id)
        endpoint = Endpoint("CONTROLLER", here.host, here.port, 0)
        self.ports = ports
        self.metadata = MetadataNode(
            HOME,
            NodeIdentity(
                node_id=self.id,
                cluster_id=CLUSTER_ID,
                directory_id=self.key.directory_id,
                endpoints=(endpoint,) if self.is_controller else (),
            ),
            ports,
            NodeSettings(
                quorum=QuorumSettings(
                    is_controller=self.is_controller,
                    static_voters=() if plan.dynamic else static,
                    bootstrap_servers=tuple(Node(NOBODY, one.host, one.port) for one in static)
                    if plan.dynamic
                    else (),
                ),
                raft=self.config,
                log=plan.log_config(),
                session_timeout_ms=plan.session_ms,
                has_broker=self.is_broker,
                transport=self,
            ),
            self.fails,
        )
        self.metadata.open()
        opened = self.metadata._opened
        assert opened is not None
        return opened

    def _put_together(self, opened: OpenReplica, ports: Ports) -> MetadataReplica:
        replica = self.metadata._replica
        look = replica._world.on_applied

        def applied(one: Applied) -> None:
            self.noted.append(one)
            look(one)

        replica._world = replace(replica._world, on_applied=applied)
        self._see_heartbeats(replica)
        return replica

    def _see_heartbeats(self, replica: MetadataReplica) -> None:
        take = replica.brokers.heartbeat

        def taken(asked: Heartbeat, done: Any, *, timeout_ms: int) -> None:
            self.world.workload.brokers.hears(self, asked)
            take(asked, done, timeout_ms=timeout_ms)

        replica.brokers.heartbeat = taken  # type: ignore[method-assign]

    def _begins(self) -> None:
        assert self.process is not None
        self.is_dark = False
        self.process.loop.on_error = self._escaped
        self.process.loop.run(self._begins_on_loop)

    def _begins_on_loop(self) -> None:
        network = NodeNetwork(self)
        if self.is_controller:
            self._listens()
        self.metadata.start()
        if self.is_controller:
            register_in_metadata(self.metadata, self.ports, network)
        if self.is_broker:
            self.broker = self._broker_side(network)
            self.broker.begin()

    def _broker_side(self, network: NodeNetwork) -> BrokerSide:
        return BrokerSide(self, network)

    def _listens(self) -> None:
        metadata, config, ports = self.metadata, self.settings_file, self.ports
        live = LiveConfig(config, lambda: metadata.image)
        changes = ChangeParts(
            live=live,
            cluster=ClusterView(self.id, CLUSTER_ID, lambda: metadata.image),
            creation=creation_without_broker(metadata.submit, live, ports.rng, metadata.brokers),
            submit=metadata.submit,
            brokers=metadata.brokers,
            own_broker_id=self.id if self.is_broker else None,
            clock=ports.clock,
        )
        table = controllers_table(config, metadata, changes, ports)
        dispatcher = Server(table, network_limits(config), ports).dispatcher
        self.listening[PORT] = "CONTROLLER", dispatcher

    def _escaped(self, error: BaseException) -> None:
        if isinstance(error, ProcessEnded) or self.process is None or self.process.disk.is_over:
            return  # the process ends in this turn
        if isinstance(error, KafkaError) and (self.closing or self.metadata.failure is not None):
            return
        self.world.breaks("no error escapes to the event loop", f"{self}: {error!r}")

    def crash(self, *, power: bool = False) -> None:
        links, self.links = list(self.links), {}
        self.is_dark = power
        self.listening.clear()
        broker, self.broker = self.broker, None
        if broker is not None:
            broker.is_over = True
        for link in links:
            link.process_ended(self)
        super().crash(power=power)

    def _closes(self, closed: Callable[[], None]) -> None:
        assert self.process is not None
        self.process.loop.begin(self._stop(closed))

    async def _stop(self, closed: Callable[[], None]) -> None:
        """As a process stops: no broker leads before its metadata node ends."""
        if self.broker is not None:
            await self.broker.leave()
        try:
            await self.metadata.close()
        except KafkaError as error:
            self.world.tell(f"{self} closes badly: {error}")
        closed()

    # -- what comes from outside, and goes there

    def bytes_of(self, parts: Sequence[object]) -> bytes | None:
        """An answer as it is sent; None: a file could not be read."""
        return b"".join(parts)  # type: ignore[arg-type]

    def on_loop(self, fn: Callable[[], object]) -> None:
        """Call something as its event loop would."""
        if self.process is not None and not self.process.has_ended:
            self.process.loop.run(fn)

    def send(
        self, to: Node, request: Request, timeout_ms: int, done: Callable[[Response | None], None]
    ) -> None:
        super().send(to, request, timeout_ms, done)
        target = self.world.addresses.who_answers(to)
        self._asked[self._sent] = NOBODY if target is None else target.id

    def hear(self, number: int, response: Response | None) -> None:
        self.world.lives.hears(self, response, self._asked.pop(number, NOBODY))
        self.on_loop(lambda: QuorumNode.hear(self, number, response))

    def deliver(self, route: Route, request: Request) -> None:
        self.on_loop(lambda: QuorumNode.deliver(self, route, request))
