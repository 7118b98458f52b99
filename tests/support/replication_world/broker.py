"""The broker's side of a node with replicas: its logs, what it leads, and what it follows.

In the order of `broker.broker.Broker`; cleaner and pages are excluded.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.coordinator.service import begin_groups
from broker.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from broker.handlers.api_versions import ApiVersionsHandler, features_of
from broker.handlers.controllers.changes import creation_without_broker
from broker.handlers.delete_records import DeleteRecordsHandler
from broker.handlers.elect_leaders import ElectLeadersHandler
from broker.handlers.fetch import FetchHandler, FetchLimits
from broker.handlers.find_coordinator import FindCoordinatorHandler
from broker.handlers.forwarded import Forwarded
from broker.handlers.holding import Holding
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.offset_commit import OffsetCommitHandler
from broker.handlers.offset_fetch import OffsetFetchHandler
from broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.handlers.parts import Unserved
from broker.handlers.produce import ProduceHandler
from broker.handlers.restored_partitions import RestoredPartitions
from broker.network.dispatch import decoders
from broker.network.registry import DecodedHandler, HandlerTable
from broker.network.server import Server
from broker.node.alter_partition import alter_partitions
from broker.node.broker_lifecycle import BrokerLifecycle, LifecycleSettings
from broker.node.committed_mark import MarkKeeper
from broker.node.directories import Directories, DirectoryError, open_directories
from broker.node.directory_checks import settle_directories
from broker.node.endpoints import advertised_endpoints, network_limits
from broker.node.housekeeping import Housekeeping, housekeeping_tasks
from broker.observe.health import Health
from broker.process.broker_logs import BrokerLogs, RemovalsRead
from broker.process.broker_tier import BrokerTier
from broker.remote.answers import ControllerQuestions
from broker.remote.confirmed_images import ConfirmedImages
from broker.remote.process import start_tier_process
from broker.remote.tier import RemoteTier
from broker.replica import partition
from broker.replica.followers import Leader
from broker.replica.hosting import ControllerRequests
from broker.replica.isr_requests import IsrRequests
from broker.replica.leader_epochs import LeaderEpochRequests
from broker.replica.leading import Leading
from broker.replica.manager import ReplicaManager
from broker.replica.target_replica import found_replicas, refused_replicas
from broker.replication.manager import ReplicaFetchers
from broker.replication.tier_bootstrap import TierBootstraps
from broker.topics.auto_creation import VERSION, AutoTopicCreation
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import OFFSETS_TOPIC
from kafka_protocol.wire.api_keys import ApiKey
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.manager.log_dir import LogDir
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.image.image import MetadataImage
from runtime.work import run_in_steps
from tests.support.nodes_world.broker import BrokerSide
from tests.support.nodes_world.connections import NodeNetwork
from tests.support.quorum_world.plan import CLUSTER_ID, HOME, INDEX_BYTES
from tests.support.replication_world.plan import DATA_PORT, DURABLE, ReplicationPlan, is_tiered
from tests.support.replication_world.restoring import WatchedRestoring
from tests.support.replication_world.tier_process import TierSupervisor

if TYPE_CHECKING:
    from tests.support.replication_world.node import ReplicaNode

partition.DURABLE_TOPICS |= {DURABLE}
COMMIT_BYTES_MAX = 2_000
"""A commit of all partitions is one batch of a segment."""
Undo = Callable[[], Awaitable[object] | object]


class SmallSegments(LiveConfig):
    """Settings whose segments are small; index files are made in full size and in memory here."""

    def __init__(
        self, static: BrokerConfig, image: Callable[[], MetadataImage], plan: ReplicationPlan
    ) -> None:
        super().__init__(static, image)
        self._segment_bytes, self._tier = plan.log_segment_bytes, plan.tier

    def log_config(self, topic: str) -> LogConfig:
        config, segment_bytes = super().log_config(topic), self._segment_bytes
        if topic == OFFSETS_TOPIC:
            segment_bytes = max(segment_bytes, COMMIT_BYTES_MAX)
        if is_tiered(topic) and self._tier is not None:
            segment_bytes = self._tier.segment_bytes
        return replace(config, segment_bytes=segment_bytes, segment_index_bytes=INDEX_BYTES)


class ReplicaSide(BrokerSide):
    """See the module.

    Attributes:
        replicas: what is hosted; None before its logs are open.
        opened: its logs.
        tier: the broker's side of its remote tier; None where there is none.
    """

    node: "ReplicaNode"

    def __init__(self, node: "ReplicaNode", network: NodeNetwork) -> None:
        super().__init__(node, network)
        self.replicas: ReplicaManager | None = None
        self.opened: BrokerLogs
        self.tier: RemoteTier | None = None
        self._network = network
        self._epoch = -1
        self._undo: list[Undo] = []
        self._starting: asyncio.Task[object] | None = None
        ports, metadata = node.ports, node.metadata
        self._live = SmallSegments(node.settings_file, lambda: metadata.image, node.world.plan)
        brokers, decoding = metadata.brokers, decoders(ports.executors)
        creation = creation_without_broker(metadata.submit, self._live, ports.rng, brokers)
        for one in (
            ElectLeadersHandler(metadata.submit, brokers.election_defaults),
            AlterPartitionReassignmentsHandler(creation, brokers.election_defaults),
        ):
            self._handlers[one.api_key] = Forwarded(
                one, self.active, ports.clock, ports.scheduler, decoding
            )

    # -- up

    async def _join(self) -> None:
        self._starting = asyncio.current_task()
        try:
            await self._start()
        except (OSError, KafkaStorageError, DirectoryError) as error:
            self._disk_ends_it(error)

    def _disk_ends_it(self, error: BaseException) -> None:
        node, world = self.node, self.node.world
        if self.is_over:
            return
        if not node.is_due_to_disk(error) and not node.disk_failures:
            world.breaks(
                "a broker starts and continues", f"{node}: {type(error).__name__}: {error}"
            )
            return
        world.tell(f"{node} ends by its disk: {error}")
        world.at_node(world.now_us, node, world.crash_for, node, 500)

    async def _start(self) -> None:
        node, ports, metadata = self.node, self.node.ports, self.node.metadata
        config = node.settings_file
        removals = RemovalsRead(metadata)
        await metadata.ready()
        pool = ports.executors.background
        directories = open_directories(
            config.log_dirs, metadata_path=HOME, node_id=node.id, disk=ports.disk
        )
        self._undo.append(directories.release)
        wiring = await self._start_tier(directories)
        is_missing_some = await pool.run(
            lambda: settle_directories(
                directories,
                metadata.image,
                log_dirs=config.log_dirs,
                node_id=node.id,
                disk=ports.disk,
                rng=ports.rng,
            )
        )
        self.opened = BrokerLogs(self._live, directories, ports, Health(node.id), pool)
        self.logs = logs = self.opened.manager
        logs.failures.on_offline = self._directory_failed
        mark = MarkKeeper(
            ports.disk,
            lambda: metadata.last_batch,
            lambda: [one.path for one in logs.online_dirs()],
        )
        self._undo.append(self._close_logs)
        await self.opened.open(metadata.image, removals.take(), is_missing_some=is_missing_some)
        self._is_missing_some = self.opened.is_missing_some
        self.incarnation_id = self.opened.incarnation_id
        node.world.validator.opens(node, self.incarnation_id)
        self._wire()
        await self._register()
        await pool.run(mark.keep)
        await self.opened.set_aside(removals.take())
        while removed := removals.take():
            await self.opened.set_aside(removed)
        removals.end()
        await self._serve()
        if self.tier is not None:
            assert self.replicas is not None
            self._undo.append(self.tier.stop)
            if node.world.plan.remove_every_ms:
                await wiring.ensure_topic(metadata, self._creation, waits=True)
            await wiring.connect(
                metadata, self.replicas, self._live, {"bootstrap.servers": "here:1"}
            )

    async def _start_tier(self, directories: Directories) -> BrokerTier:
        """Its process is started first; it works last."""
        node = self.node
        wiring = BrokerTier(node.settings_file, directories, node.ports, start_tier_process)
        self.tier = tier = wiring.tier
        if tier is not None:
            loop = asyncio.get_running_loop()
            tier._supervisor = TierSupervisor(node, tier, node.ports, loop)
            self._undo.append(tier.stop)
            await tier.start()
            await wiring.follow(node.metadata)
        return wiring

    def _wire(self) -> None:
        node, ports, metadata = self.node, self.node.ports, self.node.metadata
        config = node.settings_file
        registration = Registration(
            node.id,
            self.incarnation_id,
            advertised_endpoints(config),
            SUPPORTED_FEATURES,
            None,
            tuple(one.directory_id for one in self.logs.online_dirs()),
            keeps_directories=True,
            previous_epoch=self.logs.clean_epoch,
            remote_store=None if self.tier is None else self.tier.store,
        )
        self.life = life = BrokerLifecycle(
            self.active,
            metadata,
            registration,
            LifecycleSettings(
                cluster_id=CLUSTER_ID,
                heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
                offline_dirs=lambda: [
                    one.directory_id for one in self.logs.dirs if one.failure is not None
                ],
                free_descriptors=self._free_descriptors,
                on_end=self._ends,
            ),
            ports.scheduler,
        )
        self._undo += [self.active.close, life.close]
        self.confirmed = ConfirmedImages(metadata, life.describe_quorum, ports)
        epochs = LeaderEpochRequests(life.raise_leader_epochs, ports.scheduler)
        self._undo.append(epochs.stop)
        self.replicas = replicas = ReplicaManager(
            logs=self.logs,
            node_id=node.id,
            config_for=self._live.log_config,
            ports=ports,
            requests=ControllerRequests(
                assign=life.assign, raise_epoch=epochs.ask, leading=self._begin_leading()
            ),
            validations=None if self.tier is None else self.tier.validations,
        )
        replicas.on_failure = self._is_broken
        self._undo.append(replicas.stop)
        self._bootstraps = TierBootstraps(
            None if self.tier is None else self.tier.auxiliary_state, self.logs, ports
        )
        self.fetchers = fetchers = ReplicaFetchers(
            lambda: self._live.current,
            image=self._image,
            broker_epoch=lambda: life.epoch,
            bootstraps=self._bootstraps,
            ports=ports,
            network=self._network,
        )
        self._undo.append(fetchers.stop)
        replicas.listeners.append(fetchers.on_events)
        metadata.subscribe(fetchers.on_image)
        epochs.on_refused = replicas.epoch_refused
        replicas.hosting.is_missing_some = self._is_missing_some
        life.on_assignment_failed = replicas.hosting.assignment_failed
        self._creation = AutoTopicCreation(
            lambda question, timeout_ms: self.active.ask(
                ApiKey.CREATE_TOPICS, VERSION, question, timeout_ms=timeout_ms
            ),
            self._live.topic_defaults,
        )
        self.groups = begin_groups(self._creation, metadata, replicas, config, ports)
        self._undo.append(self.groups.stop)
        if self.tier is not None:
            questions = ControllerQuestions(
                epochs.ask, life.update_removed_topics, life.describe_quorum
            )
            self.tier.attach(replicas, metadata, questions)
        tasks = housekeeping_tasks(config, self.logs, ports.clock)
        housekeeping = Housekeeping(
            tasks, scheduler=ports.scheduler, pool=ports.executors.background
        )
        housekeeping.start(config.log_initial_task_delay_ms)
        self._undo.append(housekeeping.stop)

    def _begin_leading(self) -> Leading[Leader]:
        node, ports, life = self.node, self.node.ports, self.life
        assert life is not None
        leading: Leading[Leader] = Leading(
            ports,
            image=self._image,
            broker_epoch=lambda: life.epoch,
            lag_ms_max=lambda: self._live.current.replica_lag_time_max_ms,
            bootstrap_hold_ms=self._live.current.tidemark_follower_bootstrap_hold_ms,
        )
        requests = IsrRequests(
            lambda asked: alter_partitions(self.active, node.id, life.epoch, asked),
            ports.scheduler,
            ports.executors.commit,
        )
        leading.propose = requests.propose
        leading.start()
        self._undo += [requests.stop, leading.stop]
        return leading

    def _image(self) -> MetadataImage:
        return self.node.metadata.image

    async def _register(self) -> None:
        assert self.life is not None
        self._epoch = await self.life.register(
            await run_in_steps(found_replicas.steps(self.logs)),
            refused=refused_replicas(self.logs, self._image()),
            is_missing_some=self._is_missing_some,
        )
        self.node.world.workload.brokers.registers(
            self.node, self.node.id, self.incarnation_id, self._epoch
        )
        pool = self.node.ports.executors.background
        await pool.run(self.logs.note_running_incarnation, self._epoch, self.incarnation_id)

    async def _serve(self) -> None:
        """Host what the metadata say, be unfenced, lead, and listen."""
        node, ports, metadata = self.node, self.node.ports, self.node.metadata
        replicas, life = self.replicas, self.life
        assert replicas is not None
        assert life is not None
        replicas.apply(metadata.image, None)
        metadata.subscribe(replicas.apply)
        await life.unfence()
        await replicas.hosting.caught_up()
        watch = self._watch_membership(life)
        limits = network_limits(node.settings_file)
        node.listening[DATA_PORT] = "PLAINTEXT", Server(self._table(), limits, ports).dispatcher
        self._undo += [self._stop_listening, self.groups.stop, life.leave, watch.end]
        self.serves = True

    def _table(self) -> HandlerTable:
        """What clients and followers ask for."""
        ports, replicas, metadata = self.node.ports, self.replicas, self.node.metadata
        assert replicas is not None
        holding = Holding(ports.clock, ports.scheduler)
        cluster = ClusterView(self.node.id, CLUSTER_ID, self._image)
        table = HandlerTable(
            [
                ProduceHandler(replicas, ports.executors),
                FetchHandler(replicas, ports, limits=FetchLimits(), remote=self.tier),
                ListOffsetsHandler(
                    replicas,
                    clock=ports.clock,
                    pool=ports.executors.reads,
                    holding=holding,
                    remote=self.tier,
                ),
                OffsetForLeaderEpochHandler(replicas, holding),
                self._deleting(replicas, holding),
                FindCoordinatorHandler(self.groups, cluster, Unserved()),
                OffsetCommitHandler(self.groups, cluster),
                OffsetFetchHandler(self.groups, cluster),
                self._handlers[ApiKey.ELECT_LEADERS],
                self._handlers[ApiKey.CREATE_TOPICS],
                self._handlers[ApiKey.DELETE_TOPICS],
                self._handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS],
                self._handlers[ApiKey.ALTER_PARTITION_REASSIGNMENTS],
            ]
        )
        table.add(
            ApiVersionsHandler(table, lambda: features_of(metadata.image, metadata.kraft_version))
        )
        return table

    def _deleting(self, replicas: ReplicaManager, holding: Holding) -> DecodedHandler:
        world = self.node.world
        handler = DeleteRecordsHandler(replicas, self.node.ports.executors.commit, holding)
        if not world.plan.restores:
            return handler
        return RestoredPartitions(handler, WatchedRestoring(replicas, self._bootstraps, world))

    def _is_broken(self, error: BaseException) -> None:
        self.node.world.breaks("replicas are what the metadata say", f"{self.node}: {error!r}")

    # -- down

    async def leave(self) -> None:
        """As a process that stops: what was begun is undone in the reverse order."""
        self.is_over = True
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        while self._undo:
            try:
                undone = self._undo.pop()()
                if isawaitable(undone):
                    await undone
            except (OSError, KafkaError) as error:
                self.node.world.tell(f"{self.node} stops badly: {error}")

    def _stop_listening(self) -> None:
        self.node.listening.pop(DATA_PORT, None)

    async def _close_logs(self) -> None:
        await self.opened.close(clean=True, broker_epoch=self._epoch)

    def _directory_failed(self, directory: LogDir) -> None:
        if not self.logs.online_dirs() and directory.failure is not None:
            self._disk_ends_it(directory.failure)
