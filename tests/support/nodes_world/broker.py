"""The broker's side of a node of a simulated cluster: its life, its way to the controllers.

In the order of `broker.broker.Broker`: catch up, register, be unfenced, serve. Logs and the tier
process are excluded; the replicas that it leads are made at once.
"""

from collections.abc import Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from broker.config.live_config import LiveConfig
from broker.handlers.controllers.changes import creation_without_broker, own_handlers
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.describe_quorum import DescribeQuorumHandler
from broker.handlers.forwarded import Forwarded
from broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.network.dispatch import decoders
from broker.network.registry import DecodedHandler, RequestContext
from broker.node.active_controller import ActiveController
from broker.node.broker_lifecycle import BrokerLifecycle, LifecycleSettings
from broker.node.endpoints import advertised_endpoints
from broker.node.membership import MembershipPorts, MembershipWatch
from broker.observe.quorum_health import QuorumHealth
from broker.remote.confirmed_images import ConfirmedImages
from broker.topics.cluster import ClusterView
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.free_descriptors import NOT_REPORTED
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage
from tests.support.nodes_world.connections import NodeNetwork
from tests.support.quorum_world.plan import CLUSTER_ID

if TYPE_CHECKING:
    from tests.support.nodes_world.node import ClusterNode


def directory_of(broker_id: int) -> bytes:
    """The only log directory of a broker."""
    return b"log-" + broker_id.to_bytes(12, "big")


class BrokerSide:
    """See the module.

    Attributes:
        life: what it asks of the active controller; None before it has caught up.
        confirmed: images that a tier may delete by.
        serves: it has been unfenced once, and listens for clients.
        ended: why its process would end.
        is_over: its process has ended, or stops.
    """

    def __init__(self, node: "ClusterNode", network: NodeNetwork) -> None:
        self.node = node
        self.life: BrokerLifecycle | None = None
        self.watch: MembershipWatch | None = None
        self.serves = self.is_over = False
        self.ended: BaseException | None = None
        ports, metadata, config = node.ports, node.metadata, node.settings_file
        self.incarnation_id = ports.rng.uuid()
        live = LiveConfig(config, lambda: metadata.image)
        creation = creation_without_broker(metadata.submit, live, ports.rng, metadata.brokers)
        interval_ms = config.broker_heartbeat_interval_ms
        own = own_handlers(metadata.submit, metadata.brokers, heartbeat_interval_ms=interval_ms)
        own[ApiKey.CREATE_TOPICS] = CreateTopicsHandler(creation, live, is_own=True)
        own[ApiKey.DESCRIBE_QUORUM] = DescribeQuorumHandler(metadata.describe)
        self.active = ActiveController(metadata, own, ports, network=network)
        cluster = ClusterView(node.id, CLUSTER_ID, lambda: metadata.image)
        here: Sequence[DecodedHandler] = (
            CreateTopicsHandler(creation, live),
            DeleteTopicsHandler(cluster, metadata.submit, enabled=True),
            IncrementalAlterConfigsHandler(metadata.submit, live),
        )
        decoding = decoders(ports.executors)
        self._handlers = {
            one.api_key: Forwarded(one, self.active, ports.clock, ports.scheduler, decoding)
            for one in here
        }
        self.health = QuorumHealth(
            metadata,
            fetch_timeout_ms=node.config.fetch_timeout_ms,
            now_ms=ports.clock.monotonic_ms(),
        )

    def begin(self) -> None:
        """Join the cluster."""
        ports, health = self.node.ports, self.health
        every_ms = max(self.node.config.fetch_timeout_ms // 2, 1)
        ports.scheduler.every(
            every_ms, lambda: health.look(ports.clock.monotonic_ms()), "quorum health"
        )
        assert self.node.process is not None
        self.node.process.loop.begin(self._join())

    async def _join(self) -> None:
        node, ports = self.node, self.node.ports
        metadata, config = node.metadata, node.settings_file
        await metadata.ready()
        registration = Registration(
            node.id,
            self.incarnation_id,
            advertised_endpoints(config),
            SUPPORTED_FEATURES,
            None,
            (directory_of(node.id),),
            keeps_directories=True,
        )
        self.life = life = BrokerLifecycle(
            self.active,
            metadata,
            registration,
            LifecycleSettings(
                cluster_id=CLUSTER_ID,
                heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
                offline_dirs=lambda: (),
                free_descriptors=self._free_descriptors,
                on_end=self._ends,
            ),
            ports.scheduler,
        )
        self.confirmed = ConfirmedImages(metadata, life.describe_quorum, ports)
        await self._register()
        metadata.subscribe(self._host)
        self._host(metadata.image, None)
        await life.unfence()
        self._watch_membership(life)
        self.serves = True

    def _watch_membership(self, life: BrokerLifecycle) -> MembershipWatch:
        node, ports, metadata = self.node, self.node.ports, self.node.metadata
        self.watch = watch = MembershipWatch(
            node.id,
            self.incarnation_id,
            MembershipPorts(
                register=self._register,
                unfence=life.come_back,
                waits_for=lambda: self.health.waits_for(ports.clock.monotonic_ms()),
                on_end=self._ends,
                clock=ports.clock,
                scheduler=ports.scheduler,
            ),
        )
        metadata.subscribe(lambda image, _delta: watch.see(image))
        watch.begin(metadata.image)
        return watch

    async def _register(self) -> None:
        assert self.life is not None
        epoch = await self.life.register({})
        self.node.world.workload.brokers.registers(
            self.node, self.node.id, self.incarnation_id, epoch
        )

    async def _free_descriptors(self) -> int:
        return NOT_REPORTED

    def _ends(self, error: BaseException) -> None:
        self.node.world.lives.ends(self.node, error)
        self.ended = error

    async def leave(self) -> None:
        """Give leadership up, as a process that stops."""
        self.is_over = True
        if self.watch is not None:
            await self.watch.end()
        if self.life is not None:
            await self.life.leave()
        self.active.close()

    def problems(self) -> Sequence[str]:
        """Why it is unhealthy."""
        now_ms = self.node.ports.clock.monotonic_ms()
        more = () if self.watch is None else self.watch.problems()
        return (*self.health.problems(now_ms), *more)

    def _host(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Note where new replicas are; each is made at once."""
        if self.is_over or self.life is None or delta is None:
            return
        me = self.node.id
        wanted = {
            ReplicaId(topic.id, index): directory_of(me)
            for topic in image.topics_by_id.values()
            for index, partition in topic.partitions.items()
            if me in partition.replicas and partition.directory_of(me) != directory_of(me)
        }
        if wanted:
            self.life.assign(wanted)

    # -- clients

    async def serve(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """Answer a client's request; its answer is as the client would decode it."""
        context = RequestContext(api_key, version, 7, "client", "PLAINTEXT", ("127.0.0.1", 1), 0)
        answer = self._handlers[api_key].handle(context, request)
        if isawaitable(answer):
            answer = await answer
        codec = response(api_key)
        body = b"".join(answer) if type(answer) is list else codec.encode(answer, version)
        return codec.decode(bytes(body), version)[0]
