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
from functools import partial
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.config.live_config import LiveConfig, check_tiered_topics
from broker.control.commands import ControlCommands
from broker.control.wiring import add_commands
from broker.coordinator.service import begin_groups
from broker.handlers.handler_table import build_handlers
from broker.handlers.parts import HandlerParts
from broker.network.server import Server
from broker.node.directories import Directories, open_directories
from broker.node.directory_checks import (
    settle_directories,
    without_sidecars,
    write_life,
    writes_sidecars,
)
from broker.node.endpoints import (
    advertised_endpoints,
    bootstrap_of,
    check_single_node,
    listener_addresses,
    network_limits,
    resolve_ports,
)
from broker.node.housekeeping import Housekeeping
from broker.node.housekeeping_tasks import housekeeping_tasks
from broker.node.log_cleaning import make_cleaner
from broker.node.metadata_log import open_metadata_node
from broker.node.registration import BrokerRegistration
from broker.node.start_jobs import Count, StopMark, beside_the_loop
from broker.observe.health import Health, offline_directories, offline_reasons, routes
from broker.observe.http import HttpServer, pages
from broker.observe.metrics import register_metadata_metrics, register_replica_metrics
from broker.observe.metrics_page import MetricsPage
from broker.remote.config import tier_config
from broker.remote.process import TIER_NAMES, start_tier_process
from broker.remote.supervisor import Spawn
from broker.remote.tier import RemoteTier
from broker.replica.controller_requests import ControllerRequests
from broker.replica.leader_epochs import LeaderEpochRequests
from broker.replica.manager import ReplicaManager
from broker.replica.wanted import (
    assigned_partitions,
    found_replicas,
    refused_replicas,
    wanted_replica,
)
from broker.topics.cluster import ClusterView
from broker.topics.creation import TopicCreation
from broker.topics.internal import ensure_remote_metadata_topic
from local_log.errors import KafkaStorageError, LogClosed
from local_log.load_run import LoadRun
from local_log.log_dir import LogDir
from local_log.log_dirs import LogManager
from local_log.log_loading import Loaded
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.image.image import MetadataImage
from rlm.config import TierConfig
from runtime.disk import raise_file_limit
from runtime.executors import Pool
from runtime.ports import Ports

log = logging.getLogger(__name__)


class Broker:
    """A combined broker and controller.

    Attributes:
        config: as it was given; `live` has what changed since.
        health: what the health pages say.
        metrics: everything that is counted here.
        control: commands of the control listener; parts add theirs.
        control_address: host:port of that listener once it is open, "" where it is off.
        fatal: fails when the broker cannot go on and must be stopped.
    """

    def __init__(
        self, config: BrokerConfig, ports: Ports, spawn_tier: Spawn = start_tier_process
    ) -> None:
        """Make a broker of the running event loop; nothing is touched before `start`.

        Args:
            config: its settings.
            ports: of its own: the pools end with it.
            spawn_tier: starts a tier process.
        """
        self._spawn_tier = spawn_tier
        self.config = resolve_ports(config)
        self.metrics = ports.metrics
        self.health = Health(config.node_id)
        self.control, self.control_address = ControlCommands(), ""
        self._metrics_page = MetricsPage(ports.metrics)
        self._ports = ports
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
        self._directories = self._open_directories()
        self._on_stop(self._ports.executors.shutdown)
        await self._start_http()
        await self._start_tier()
        await self._open_metadata()
        await self._open_logs()
        self._wire()
        await self._join()
        await self._listen()
        self.health.stage = "running"
        await self._connect_tier()
        if self.config.control_listener is not None:
            from broker.control.listener import open_control  # loads OpenSSL, with hmac

            self.control_address = await open_control(self.config, self.control, self._on_stop)
        self._housekeeping.start(self.config.log_initial_task_delay_ms)
        self._on_stop(self._housekeeping.stop)
        self._cleaner.start()
        self._on_stop(self._cleaner.stop)
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
        server = HttpServer(*address, pages(routes(self.health, self._metrics_page)))
        try:
            await server.start()
        except OSError as error:
            shown = f"{address[0]}:{address[1]}"
            raise ConfigError("tidemark.http.listener", shown, f"cannot listen: {error}") from error
        self._on_stop(server.stop)
        log.info("serving metrics and health: address=%s:%d", address[0], server.port)

    async def _open_metadata(self) -> None:
        """Metadata first: it says which settings the logs have; read beside the event loop."""
        self._node = open_metadata_node(self.config, self._directories, self._ports, self._fail)
        self._on_stop(self._node.close)
        mark = StopMark()
        self.health.progress = lambda: "reading the metadata log"
        try:
            opening = partial(self._node.open, self._settle_directories, mark.check)
            await beside_the_loop(self._recovery_pool, opening, stop=mark.stop)
        finally:
            self.health.progress = lambda: ""
        self._node.start()
        await self._node.ready()
        self.live = LiveConfig(self.config, self._image)
        check_tiered_topics(self.config, self._image())

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

    async def _open_logs(self) -> None:
        """Open what the metadata want of what lies in the directories, beside the event loop.

        As in Kafka nothing is served before all of it is open; but the health pages answer, the
        tier is held, and a signal ends the start.
        """
        ports, node_id, image = self._ports, self.config.node_id, self._image()
        is_missing_some = self._is_missing_some
        self._logs = LogManager(
            list(self.config.log_dirs),
            self.live.log_config,
            ports,
            to_loop=asyncio.get_running_loop().call_soon_threadsafe,
            own_names=TIER_NAMES,
        )
        self._logs.failures.on_offline = self._directory_failed
        for path, reason in self._directories.offline.items():
            self._logs.put_offline(path, reason)
        previous = image.brokers.get(node_id)
        run = self._logs.load_run(
            lambda tp: wanted_replica(image, node_id, tp, is_missing_some=is_missing_some),
            threads=self.live.current.num_recovery_threads_per_data_dir,
            compare=writes_sidecars(image, node_id),
            without_sidecars=without_sidecars(image, node_id, self._directories.ids),
            last_broker_epoch=None if previous is None else previous.epoch,
            assigned=assigned_partitions(image, node_id),
        )
        self._on_stop(self._close_logs)
        self._logs.take(await self._finished(run))
        self._incarnation_id = ports.dice.uuid()
        await self._recovery_pool.run(self._settle_logs, image)
        if not self._logs.online_dirs():
            raise KafkaStorageError(
                "no log directory works: " + "; ".join(offline_directories(self._logs.dirs))
            )
        self._is_missing_some = is_missing_some or len(self._logs.online_dirs()) < len(
            self._logs.dirs
        )

    @property
    def _recovery_pool(self) -> Pool:
        """Waits for the threads that open logs, and for disks at the start."""
        return self._ports.executors.pool("log-recovery", 1)

    async def _finished(self, run: LoadRun) -> Loaded:
        """What `run` has opened."""

        def stop() -> None:
            log.info("the start ends while logs are opened: done=%d of=%s", run.done, run.total)
            run.stop()

        self.health.progress = run.stage
        try:
            return await beside_the_loop(self._recovery_pool, run.run, stop=stop)
        finally:
            self.health.progress = lambda: ""

    def _settle_logs(self, image: MetadataImage) -> None:
        """Write what the directories must say before this life begins; on a pool thread."""
        self._logs.renew_checkpoints()
        for directory in self._logs.online_dirs():
            path, node_id = directory.path, self.config.node_id
            try:
                write_life(self._ports.disk, path, image, node_id, self._incarnation_id)
            except OSError as error:
                self._logs.fail(directory, error)

    async def _close_logs(self) -> None:
        """Close all logs beside the event loop, and say how far it is."""
        count = Count(len(self._logs.all()), "logs are closed", self._ports.clock)
        self.health.progress = count.text
        await self._recovery_pool.run(
            partial(
                self._logs.close,
                clean=self._clean,
                broker_epoch=self._broker_epoch,
                closed=count.one_more,
            )
        )

    async def _set_aside(self) -> None:
        """Rename what is no partition of ours; whoever cancels this gets the end of it first."""
        await beside_the_loop(self._recovery_pool, self._logs.set_aside, stop=lambda: None)

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
            self._registration.raise_leader_epochs, self._ports.scheduler
        )
        self._on_stop(self._leader_epochs.stop)
        self._replicas = ReplicaManager(
            logs=self._logs,
            node_id=node_id,
            config_for=self.live.log_config,
            ports=ports,
            requests=ControllerRequests(
                assign=self._registration.assign, raise_epoch=self._leader_epochs.ask
            ),
            judgements=None if self._tier is None else self._tier.judgements,
        )
        self._on_stop(self._replicas.stop)
        self._leader_epochs.on_refused = self._replicas.epoch_refused
        self._replicas.is_missing_some = self._is_missing_some
        self._registration.on_assignment_failed = self._replicas.assignment_failed
        self._creation = TopicCreation(
            self._node.submit,
            defaults=self.live.topic_defaults,
            validate_config=self.live.validate_new_topic,
            dice=ports.dice,
            settled=self._replicas.settled,
            backlog=lambda: self._replicas.backlog,
        )
        self._groups = begin_groups(self._creation, self._node, self._replicas, self.config, ports)
        self._on_stop(self._groups.stop)
        if self._tier is not None:
            self._tier.attach(self._replicas, self._node, self._leader_epochs.ask)
        self._cleaner = make_cleaner(lambda: self.live.current, self._logs, ports)
        self._server = self._make_server()
        self._housekeeping = Housekeeping(
            housekeeping_tasks(self.config, self._logs, ports.clock),
            scheduler=self._ports.scheduler,
            pool=self._ports.executors.background,
        )
        register_replica_metrics(self.metrics, self._replicas, ports.executors)
        register_metadata_metrics(self.metrics, self._image, self._node)
        if self.config.control_listener is not None:
            from broker.faults.service import add_faults  # of tests: others need not load it

            add_faults(
                self.control, self._server, self._replicas.topic_names.get, self._tier, ports
            )
        self.health.checks["logs"] = lambda: offline_directories(self._logs.dirs)
        self.health.warnings["compaction"] = self._cleaner.problems
        self.health.checks["groups"] = self._groups.problems
        self.health.warnings["groups-data"] = self._groups.damages
        self.health.checks["partitions"] = lambda: offline_reasons(self._replicas.offline)

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
        config, loop = self._tier_config(self.config), asyncio.get_running_loop()
        tier = RemoteTier(config, self._ports, loop, self._spawn_tier)
        self._metrics_page.others.append(tier.metrics)
        self.health.checks["tier"] = lambda: tier.state().reasons
        self.health.warnings["tier"] = tier.judgements.late
        self.health.notes["tier"] = tier.judgements.progress
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
            groups=self._groups,
            tier=self._tier,
            ports=ports,
        )
        self.advance = add_commands(self.control, parts, self.health, self._cleaner)
        limits = network_limits(self.config, self._tier)
        server = Server(build_handlers(parts), limits, ports)
        server.read_failures.on_failure = self._file_failed
        return server

    async def _join(self) -> None:
        """Register, host what the metadata say, and lead it."""
        self._broker_epoch = await self._registration.register(
            found_replicas(self._logs),
            refused=refused_replicas(self._logs, self._image()),
            is_missing_some=self._is_missing_some,
        )
        await self._set_aside()
        self._replicas.apply(self._image(), None)
        self._node.subscribe(self._replicas.apply)
        await self._registration.unfence()
        await self._replicas.caught_up()

    async def _listen(self) -> None:
        await self._server.start(listener_addresses(self.config))
        self._on_stop(self._server.stop)
        self._on_stop(self._groups.stop)  # parked requests are answered while they have connections
        # Clients hear that nobody leads here before their connections end.
        self._on_stop(self._registration.leave)
        for name, (host, port) in self._server.bound.items():
            log.info("listening: listener=%s address=%s:%d", name, host, port)

    async def _start_tier(self) -> None:
        """Start the tier process: a plugin that refuses its settings ends the start right here."""
        self._tier = self._make_tier() if self.config.remote_log_storage_system_enable else None
        if self._tier is not None:
            self._on_stop(self._tier.stop)
            await self._tier.start()

    async def _connect_tier(self) -> None:
        """Let the tier work, now that its Kafka clients can reach us."""
        if (tier := self._tier) is None:
            return
        await ensure_remote_metadata_topic(
            self._image(),
            self._creation,
            self.config.rlmm_settings,
            prefix=str(self.config.get("remote.log.metadata.manager.impl.prefix")),
        )
        self._on_stop(tier.stop)
        self._replicas.listeners.append(tier.on_replicas)
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
                    one.health.fail(error)

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
