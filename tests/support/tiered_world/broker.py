"""One broker of two: log, replicas, fetchers, handlers and a whole tier, and its lives."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker.config.broker_config import BrokerConfig
from broker.remote.answers import ControllerQuestions
from broker.remote.tier import RemoteTier
from broker.replica.partition import Partition
from broker.replication.manager import ReplicaFetchers
from broker.replication.tier_bootstrap import TierBootstraps
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.types import TopicIdPartition
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage, Endpoint
from rlm.config import TierConfig
from rlmm.store import MemoryStore
from runtime.metrics import Registry
from tests.support.kafka_client.sim_network import SimNetwork
from tests.support.sim.rng import SeededRng
from tests.support.tiered_world.loop_tier import LoopTier
from tests.support.worlds.data_plane import World
from tests.support.worlds.followers import LeaderSide, Served

if TYPE_CHECKING:
    from tests.support.tiered_world.world import TieredWorld

CLUSTER = "c"
COPY_MAX_MS = 30_000
"""A copy that was given up is deleted permanently after this."""
PARTITION = TopicIdPartition(b"T" * 16, 0, "t")


class _Metadata:
    """The metadata that a broker's tier is answered from: of a node that is the only voter."""

    cluster_id = CLUSTER
    is_alone = True

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def image(self) -> MetadataImage:
        return self._world.image

    @property
    def high_watermark(self) -> int:
        return self.image.provenance.end_offset


async def _is_told(_: object) -> None:
    """The controller is told, and does nothing."""


class TieredBroker:
    """See the module.

    Attributes:
        life: counts its starts.
        world: its log and replicas; those of the last life while it is down.
        side: answers what other brokers and clients ask.
        tier: the broker's side of its tier.
        loop_tier: the tier.
        is_up: whether it runs.
    """

    def __init__(self, cluster: "TieredWorld", broker_id: int, name: str) -> None:
        self.cluster, self.id, self.name = cluster, broker_id, name
        self.directory = cluster.directory / name
        self.directory.mkdir()
        self._cache = MemoryStore()
        self.life = 0
        self.is_up = False
        self.world: World
        self.side: LeaderSide
        self.tier: RemoteTier
        self.loop_tier: LoopTier
        self.fetchers: ReplicaFetchers

    @property
    def address(self) -> tuple[str, int]:
        return self.name, 9000 + self.life

    @property
    def partition(self) -> Partition | None:
        """The only one; None where it is not here."""
        name = PARTITION.topic_partition
        return self.world.replicas.get(name) if self.is_up else None

    @property
    def log(self) -> Any:
        return self.world.log("t")

    @property
    def epoch(self) -> int:
        """Of its life, as its registration had it."""
        return 100 * self.life + self.id

    def begin(self) -> None:
        """Open its log, and let it do what the metadata say."""
        cluster = self.cluster
        self.life += 1
        self.is_up = True
        endpoint = Endpoint("PLAINTEXT", *self.address)
        cluster.brokers[self.id] = BrokerImage(self.id, self.epoch, bytes(16), (endpoint,))
        self.world = world = World(
            self.directory,
            configs=cluster.configs,
            topics=cluster.topics,
            has_tier=True,
            node_id=self.id,
        )
        world.brokers = cluster.brokers
        world.clock.advance(cluster.passed_ms)
        world.image = MetadataImage()
        # Ids that are drawn in one life are not drawn in another one.
        ports = replace(world.ports, rng=SeededRng(self.epoch), metrics=Registry())
        self.loop_tier = LoopTier(ports, cluster.metadata_topic, self._cache, str(cluster.store))
        self.tier = RemoteTier(
            self._tier_config(), world.ports, asyncio.get_running_loop(), self.loop_tier
        )
        self.tier.attach(
            world.replicas,
            _Metadata(world),  # type: ignore[arg-type]
            ControllerQuestions(lambda *_, **more: "", _is_told, _is_told),
        )
        self.side = LeaderSide(world, self.tier)
        cluster.listeners[self.address] = lambda: Served(self.side)
        self._follow()
        world.replicas.listeners.append(self.tier.on_replicas)

    def _follow(self) -> None:
        world, network = self.world, SimNetwork(self.world.scheduler, self.world.rng)
        network.nodes, network.cut = self.cluster.listeners, self.cluster.cut
        config, _ = BrokerConfig.load({
            "process.roles": "broker",
            "node.id": str(self.id),
            "controller.quorum.bootstrap.servers": "localhost:1",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory),
        })  # fmt: skip
        self.fetchers = ReplicaFetchers(
            lambda: config,
            image=lambda: world.image,
            broker_epoch=lambda: self.epoch,
            bootstraps=TierBootstraps(self.tier.auxiliary_state, world.logs, world.ports),
            ports=world.ports,
            network=network,
        )
        world.replicas.listeners.append(self.fetchers.on_events)

    def _tier_config(self) -> TierConfig:
        state_dir = str(self.directory)
        return TierConfig(
            node_id=self.id,
            cluster_id=CLUSTER,
            state_dir=state_dir,
            cache_dir=state_dir,
            storage_class="rsm_plugins.local_fs:LocalFsRemoteStorageManager",
            metadata_settings={
                "node.id": str(self.id),
                "cluster.id": CLUSTER,
                "log.dir": state_dir,
            },
            task_interval_ms=500,
            copy_max_ms=COPY_MAX_MS,
        )

    def step(self, step_ms: int) -> None:
        """Let time pass."""
        self.world.scheduler.advance(step_ms)
        self.loop_tier.metadata.turn()

    async def kill(self) -> None:
        """End it without a word: what it had said to others is lost, its files stay."""
        self.is_up = False
        self.cluster.cut.add(self.address)
        del self.cluster.brokers[self.id]
        self.loop_tier.end()
        self.side.end()
        await self.fetchers.stop()
        await self.world.replicas.stop()
        self.world.logs.close(clean=False)

    def wipe(self) -> None:
        """Its disk is another one; it is down."""
        assert not self.is_up
        for path in sorted(self.directory.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self._cache = MemoryStore()

    def cut_file(self, offset: int) -> None:
        """Records from `offset` on had not reached its disk; it is down."""
        assert not self.is_up
        (path,) = (self.directory / "t-0").glob("*.log")
        data = path.read_bytes()
        end = next(at for at, header in iter_batches(data) if header.base_offset == offset)
        with path.open("r+b") as file:
            file.truncate(end)
