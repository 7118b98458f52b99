"""One server process from start to stop: which parts there are, and in which order they live.

The order is the point of this file. Up: directories checked and locked, the tier process with its
storage plugin (which may refuse its settings, so nothing is written before), metadata log, local
logs recovered, registered, leading, listening; only then the tier works, since its Kafka clients
need the listener. Down: the tier first, then leadership, then listeners, then the logs with their
clean mark, the metadata log last. A kill at any moment is a normal way to stop; the next start
recovers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from broker.cluster import ClusterView
from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.directories import Directories, open_directories
from broker.directory_checks import (
    settle_directories,
    without_sidecars,
    write_life,
    writes_sidecars,
)
from broker.endpoints import (
    advertised_endpoints,
    bootstrap_of,
    check_single_node,
    listener_addresses,
    network_limits,
    resolve_ports,
)
from broker.handler_table import HandlerParts, build_handlers
from broker.health import Health, offline_reasons, routes
from broker.housekeeping import Housekeeping
from broker.housekeeping_tasks import housekeeping_tasks
from broker.http import HttpServer
from broker.internal_topics import ensure_remote_metadata_topic
from broker.live_config import LiveConfig, check_tiered_topics
from broker.metadata_log import open_metadata_node
from broker.network.server import Server
from broker.registration import BrokerRegistration
from broker.remote.config import tier_config
from broker.remote.tier import RemoteTier
from broker.replica.leader_epochs import LeaderEpochRequests
from broker.replica.manager import ReplicaManager
from broker.replica.wanted import (
    assigned_partitions,
    found_replicas,
    refused_replicas,
    wanted_replica,
)
from broker.server_metrics import register_log_metrics, register_metadata_metrics
from broker.topic_creation import TopicCreation
from local_log.errors import KafkaStorageError, LogClosed
from local_log.log_dir import LogDir
from local_log.log_dirs import LogManager
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.image.image import MetadataImage
from rlm.config import TierConfig
from runtime.clock import Clock, SystemClock
from runtime.dice import Dice, SystemDice
from runtime.disk import Disk, raise_file_limit
from runtime.executors import make_pool
from runtime.metrics import Registry
from runtime.scheduler import LoopScheduler

log = logging.getLogger(__name__)

LOG_IO_THREADS = 4
TIER_NAMES = (
    "tier.lock",
    "tier-incarnation",
    "remote-log-index-cache",
    "remote-log-chunk-cache",
    "remote-log-metadata",
    "remote-log-metadata.damaged",
)
"""What the tier process keeps in log directories, beside the partitions."""


@dataclass(slots=True)
class Ports:
    """What the process stands on; tests hand in others."""

    clock: Clock = field(default_factory=SystemClock)
    dice: Dice = field(default_factory=SystemDice)
    disk: Disk = field(default_factory=Disk)


class Broker:
    """A combined broker and controller.

    Attributes:
        config: as it was given; `live` has what changed since.
        health: what the health pages say.
        metrics: everything that is counted here.
        fatal: fails when the broker cannot go on and must be stopped.
    """

    def __init__(self, config: BrokerConfig, ports: Ports | None = None) -> None:
        """Make a broker of the running event loop; nothing is touched before `start`."""
        self.config = resolve_ports(config)
        self.metrics = Registry()
        self.health = Health(config.node_id)
        self._ports = ports or Ports()
        self._undo: list[Callable[[], Awaitable[object] | None]] = []
        self._clean = False
        self._broker_epoch = -1
        self._tier_settings = config
        self.fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Serve clients; returns when the tier runs, too.

        Raises:
            ConfigError, DirectoryError, InternalTopicError, TierStartError, OSError: it cannot;
                `stop` undoes what was started until then.
        """
        check_single_node(self.config)
        log.info("files: at most %d can be open", raise_file_limit())
        self._scheduler = LoopScheduler(asyncio.get_running_loop())
        self._directories = self._open_directories()
        self._pool = make_pool("log-io", LOG_IO_THREADS)
        self._on_stop(self._pool.shutdown)
        await self._start_http()
        await self._start_tier()
        self._open_data()
        self._wire()
        await self._join()
        await self._listen()
        self.health.stage = "running"
        await self._connect_tier()
        self._housekeeping.start(self.config.log_initial_task_delay_ms)
        self._on_stop(self._housekeeping.stop)
        log.info(
            "started: node_id=%d cluster_id=%s partitions=%d",
            self.config.node_id,
            self._directories.cluster_id,
            len(self._replicas.partitions),
        )

    async def stop(self) -> None:
        """Stop in the reverse order of the start; a second call does nothing."""
        self._clean = self.health.stage == "running" and not self.fatal.done()
        self.health.stage = "stopping"
        while self._undo:
            undo = self._undo.pop()
            try:
                done = undo()
                if done is not None:
                    await done
            except Exception:
                self._clean = False
                log.exception("a part did not stop cleanly")
        log.info("stopped: node_id=%d", self.config.node_id)

    def _on_stop(self, undo: Callable[[], Awaitable[object] | None]) -> None:
        self._undo.append(undo)

    # -- up, in this order

    def _open_directories(self) -> Directories:
        directories = open_directories(
            self.config.log_dirs,
            metadata_path=self.config.metadata_log_dir,
            node_id=self.config.node_id,
            disk=self._ports.disk,
        )
        self._on_stop(directories.release)
        return directories

    async def _start_http(self) -> None:
        address = self.config.http_listener
        if address is None:
            return
        server = HttpServer(*address, routes(self.health, self.metrics))
        try:
            await server.start()
        except OSError as error:
            shown = f"{address[0]}:{address[1]}"
            raise ConfigError("tidemark.http.listener", shown, f"cannot listen: {error}") from error
        self._on_stop(server.stop)

    def _open_data(self) -> None:
        """Metadata first: it says which settings the logs have."""
        ports = self._ports
        self._node = open_metadata_node(
            self.config,
            self._directories,
            disk=ports.disk,
            clock=ports.clock,
            pool=self._pool,
            dice=ports.dice,
            scheduler=self._scheduler,
            on_failure=self._fail,
        )
        self._node.start(self._settle_directories)
        self._on_stop(self._node.close)
        self.live = LiveConfig(self.config, self._image)
        check_tiered_topics(self.config, self._image())
        self._open_logs()

    def _settle_directories(self, image: MetadataImage) -> None:
        """Settle which directories are used, before the start of the metadata log writes to it.

        Otherwise each refused start on an older copy of it would make the copy look newer.
        """
        self._is_missing_some = settle_directories(
            self._directories,
            image,
            log_dirs=self.config.log_dirs,
            node_id=self.config.node_id,
            disk=self._ports.disk,
            dice=self._ports.dice,
        )

    def _open_logs(self) -> None:
        """Open what the metadata want of what lies in the directories."""
        ports, node_id, image = self._ports, self.config.node_id, self._image()
        is_missing_some = self._is_missing_some
        self._logs = LogManager(
            list(self.config.log_dirs),
            config_for=self.live.log_config,
            disk=ports.disk,
            clock=ports.clock,
            scheduler=self._scheduler,
            pool=self._pool,
            dice=ports.dice,
            to_loop=asyncio.get_running_loop().call_soon_threadsafe,
            own_names=TIER_NAMES,
        )
        self._logs.on_offline = self._directory_failed
        for path, reason in self._directories.offline.items():
            self._logs.put_offline(path, reason)
        previous = image.brokers.get(node_id)
        self._logs.load(
            lambda tp: wanted_replica(image, node_id, tp, is_missing_some=is_missing_some),
            compare=writes_sidecars(image, node_id),
            without_sidecars=without_sidecars(image, node_id, self._directories.ids),
            last_broker_epoch=None if previous is None else previous.epoch,
            assigned=assigned_partitions(image, node_id),
        )
        self._on_stop(self._close_logs)
        self._incarnation_id = ports.dice.uuid()
        for directory in self._logs.online_dirs():
            try:
                write_life(ports.disk, directory.path, image, node_id, self._incarnation_id)
            except OSError as error:
                self._logs.fail(directory, error)
        if not self._logs.online_dirs():
            raise KafkaStorageError("no log directory works: " + "; ".join(self._offline_dirs()))
        self._is_missing_some = is_missing_some or len(self._logs.online_dirs()) < len(
            self._logs.dirs
        )

    def _close_logs(self) -> None:
        self._logs.close(clean=self._clean, broker_epoch=self._broker_epoch)

    def _wire(self) -> None:
        """Make the parts that serve clients; nothing is served yet."""
        ports, node_id = self._ports, self.config.node_id
        self._registration = BrokerRegistration(
            self._node.submit,
            Registration(
                node_id,
                self._incarnation_id,
                advertised_endpoints(self.config),
                SUPPORTED_FEATURES,
                self.config.broker_rack,
                tuple(directory.directory_id for directory in self._logs.online_dirs()),
                keeps_directories=True,
            ),
        )
        self._leader_epochs = LeaderEpochRequests(
            self._registration.raise_leader_epochs, self._scheduler
        )
        self._on_stop(self._leader_epochs.stop)
        self._replicas = ReplicaManager(
            logs=self._logs,
            node_id=node_id,
            pool=self._pool,
            config_for=self.live.log_config,
            metrics=self.metrics,
            assign=self._registration.assign,
            has_tier=self._tier is not None,
            raise_epoch=self._leader_epochs.ask,
        )
        self._leader_epochs.on_refused = self._replicas.epoch_refused
        self._replicas.is_missing_some = self._is_missing_some
        self._registration.on_assignment_failed = self._replicas.assignment_failed
        self._creation = TopicCreation(
            self._node.submit,
            defaults=self.live.topic_defaults,
            validate_config=self.live.validate_new_topic,
            dice=ports.dice,
            hosted=self._replicas.hosted,
        )
        if self._tier is not None:
            self._tier.attach(
                replicas=self._replicas,
                logs=self._logs,
                image=self._image,
                high_watermark=lambda: self._node.high_watermark,
                submit=self._node.submit,
                raise_epoch=self._leader_epochs.ask,
            )
        self._server = self._make_server()
        self._housekeeping = Housekeeping(
            housekeeping_tasks(self.config, self._logs, ports.clock),
            scheduler=self._scheduler,
            pool=self._pool,
        )
        register_log_metrics(self.metrics, self._replicas)
        register_metadata_metrics(self.metrics, self._image, self._node)
        self.health.checks["logs"] = self._offline_dirs
        self.health.checks["partitions"] = lambda: offline_reasons(self._replicas.offline)

    @property
    def _has_tier(self) -> bool:
        return self.config.remote_log_storage_system_enable

    def _tier_config(self, config: BrokerConfig) -> TierConfig:
        return tier_config(
            config,
            self.config.layers.static,
            node_id=self.config.node_id,
            cluster_id=self._directories.cluster_id,
            state_dir=str(self.config.metadata_log_dir),
            cache_dir=str(self._first_working_dir()),
            old_state_dirs=[str(self.config.log_dirs[0])],
            bootstrap_servers=bootstrap_of(self.config),
        )

    def _first_working_dir(self) -> Path:
        usable = [path for path in self.config.log_dirs if path in self._directories.ids]
        return usable[0] if usable else self.config.metadata_log_dir

    def _make_tier(self) -> RemoteTier:
        ports = self._ports
        tier = RemoteTier(
            config=self._tier_config(self.config),
            clock=ports.clock,
            scheduler=self._scheduler,
            pool=self._pool,
            metrics=self.metrics,
            loop=asyncio.get_running_loop(),
            disk=ports.disk,
            dice=ports.dice,
        )
        self.health.checks["tier"] = lambda: tier.state().reasons
        return tier

    def _make_server(self) -> Server:
        ports = self._ports
        cluster = ClusterView(self.config.node_id, self._directories.cluster_id, self._image)
        parts = HandlerParts(
            config=self.config,
            live=self.live,
            cluster=cluster,
            creation=self._creation,
            node=self._node,
            registration=self._registration,
            replicas=self._replicas,
            logs=self._logs,
            tier=self._tier,
            clock=ports.clock,
            scheduler=self._scheduler,
            pool=self._pool,
            dice=ports.dice,
            metrics=self.metrics,
        )
        server = Server(
            handlers=build_handlers(parts),
            limits=network_limits(self.config, self._tier),
            clock=ports.clock,
            scheduler=self._scheduler,
            pool=self._pool,
            disk=ports.disk,
            metrics=self.metrics,
        )
        server.read_failures.on_failure = self._file_failed
        return server

    async def _join(self) -> None:
        """Register, host what the metadata say, and lead it."""
        self._broker_epoch = await self._registration.register(
            found_replicas(self._logs),
            refused=refused_replicas(self._logs, self._image()),
            is_missing_some=self._is_missing_some,
        )
        self._logs.set_aside()
        self._replicas.apply(self._image(), None)
        self._node.subscribe(self._replicas.apply)
        await self._registration.unfence()

    async def _listen(self) -> None:
        await self._server.start(listener_addresses(self.config))
        self._on_stop(self._server.stop)
        # Clients hear that nobody leads here before their connections end.
        self._on_stop(self._registration.leave)
        for name, (host, port) in self._server.bound.items():
            log.info("listening: listener=%s address=%s:%d", name, host, port)

    async def _start_tier(self) -> None:
        """Start the tier process: a plugin that refuses its settings ends the start right here."""
        self._tier = self._make_tier() if self._has_tier else None
        if self._tier is not None:
            self._on_stop(self._tier.stop)
            await self._tier.start()

    async def _connect_tier(self) -> None:
        """Let the tier work, now that its Kafka clients can reach us."""
        tier = self._tier
        if tier is None:
            return
        await ensure_remote_metadata_topic(
            self._image(),
            self._creation,
            self.config.rlmm_settings,
            prefix=str(self.config.get("remote.log.metadata.manager.impl.prefix")),
        )
        self._on_stop(tier.stop)
        self._replicas.on_change.append(tier.on_partitions_changed)
        self._node.subscribe(lambda image, delta: self._reconfigure_tier(tier))
        self._reconfigure_tier(tier)
        await tier.connect()

    def _reconfigure_tier(self, tier: RemoteTier) -> None:
        """Hand on settings that were changed over the wire."""
        config = self.live.current
        if config is not self._tier_settings:
            self._tier_settings = config
            tier.reconfigure(self._tier_config(config))

    # -- facts

    def _directory_failed(self, directory: LogDir) -> None:
        """A log directory went offline; as in Kafka the last one takes the broker with it."""
        if not self._logs.online_dirs():
            self._end(KafkaStorageError(f"no log directory works any more: {directory.failure}"))

    def _file_failed(self, path: Path, error: OSError) -> None:
        """A file could not be read while it was sent: its log fails, as at any other read."""
        for one in self._logs.all():
            if one.directory == path.parent and not one.is_offline:
                with contextlib.suppress(KafkaStorageError, LogClosed):
                    one.fail(error)

    def _fail(self, error: BaseException) -> None:
        """The metadata node cannot go on."""
        self.health.checks["metadata"] = lambda: [f"the metadata log failed: {error}"]
        self._end(error)

    def _end(self, error: BaseException) -> None:
        """The broker cannot go on: whoever runs it stops it."""
        if not self.fatal.done():
            self.fatal.set_exception(error)

    def _image(self) -> MetadataImage:
        return self._node.image

    def _offline_dirs(self) -> list[str]:
        return [
            f"log directory {directory.path} is offline: {directory.failure}"
            for directory in self._logs.dirs
            if directory.failure is not None
        ]
