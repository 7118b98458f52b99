"""One broker process from start to stop: its parts, and the order in which they start and stop.

Start: directories are checked and locked. The tier process starts with its storage plugin, before
anything is written, because it may refuse its settings. Then the metadata log opens, local logs are
recovered, and the broker registers, leads and listens. The tier works only after the listener of
its Kafka clients is open.

Stop: the tier, its listener, leadership, the other listeners, the logs with their clean mark, and
last the metadata log. A kill at any moment is a normal way to stop, from which the next start
recovers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.coordinator.service import begin_groups
from broker.handlers.controllers.changes import ChangeParts, own_handlers
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.describe_quorum import DescribeQuorumHandler
from broker.handlers.handler_table import build_handlers, build_tier_handlers
from broker.handlers.parts import HandlerParts
from broker.network.listening import listen
from broker.network.server import Server
from broker.node.active_controller import ActiveController
from broker.node.alter_partition import alter_partitions
from broker.node.broker_lifecycle import BrokerDescriptors, BrokerLifecycle, LifecycleSettings
from broker.node.cluster_secret import check_secret_among_several, read_cluster_secret
from broker.node.committed_mark import KEEP_MS, MarkKeeper
from broker.node.directory_checks import (
    settle_directories,
)
from broker.node.endpoints import (
    advertised_endpoints,
    listener_addresses,
    network_limits,
)
from broker.node.housekeeping import Housekeeping, Task, housekeeping_tasks, make_cleaner
from broker.node.membership import MembershipPorts, MembershipWatch
from broker.node.metadata_log import open_metadata_node
from broker.node.raft_config import moved_voter
from broker.observe.cluster_metrics import register_metadata_metrics
from broker.observe.consumer_lag import ConsumerLag
from broker.observe.health import Check, Health, offline_directories, offline_reasons, put_aside
from broker.observe.metrics import register_replica_metrics
from broker.observe.replication_metrics import register_leading
from broker.process.broker_logs import BrokerLogs, RemovalsRead, watch_disks
from broker.process.broker_source import BrokerSource
from broker.process.broker_tier import BrokerTier
from broker.process.controllers_listener import ControllersListener
from broker.process.quorum_member import QuorumMember
from broker.process.server_process import ServerProcess, Undo
from broker.process.tier_listener import TierListener, identity_in_cluster, identity_of_lone_broker
from broker.remote.answers import ControllerQuestions
from broker.remote.process import start_tier_process
from broker.remote.supervisor import Spawn
from broker.replica.directory_moves import DirectoryMoves
from broker.replica.followers import Leader
from broker.replica.hosting import ControllerRequests
from broker.replica.isr_requests import IsrRequests
from broker.replica.leader_epochs import LeaderEpochRequests
from broker.replica.leading import Leading
from broker.replica.manager import ReplicaManager
from broker.replica.target_replica import (
    found_replicas,
    refused_replicas,
)
from broker.replication.manager import ReplicaFetchers
from broker.replication.tier_bootstrap import TierBootstraps
from broker.topics.auto_creation import VERSION, AutoTopicCreation
from broker.topics.cluster import ClusterView
from broker.topics.creation import TopicCreation
from broker.topics.internal import remote_metadata_notes, remote_metadata_problems
from kafka_client.connection import POOL, THREADS
from kafka_protocol.wire.api_keys import ApiKey
from local_log.cleaner.cleaner import LogCleaner
from local_log.errors import KafkaStorageError
from local_log.manager.log_dir import LogDir
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.image.image import MetadataImage
from runtime.disk import raise_file_limit
from runtime.health_reasons import HealthReason
from runtime.ports import Ports
from runtime.work import run_in_steps

log = logging.getLogger(__name__)


class ServingParts(NamedTuple):
    """Parts of a serving broker, for `broker.testing`."""

    handlers: HandlerParts
    server: Server
    cleaner: LogCleaner
    health: Health
    on_stop: Callable[[Undo], None]


Extend = Callable[[ServingParts], Awaitable[None]]


class Broker(ServerProcess):
    """A broker, with or without a controller in its process.

    Attributes:
        live: Current settings, including changes since the start.
    """

    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        spawn_tier: Spawn = start_tier_process,
        extend: Extend | None = None,
    ) -> None:
        """Make a broker on the running event loop; nothing is opened before `start`.

        Args:
            config: Settings of the broker.
            ports: Used by this broker alone: it stops their pools.
            spawn_tier: Starts a tier process.
            extend: Adds parts to the serving broker.
        """
        super().__init__(config, ports)
        self._spawn_tier = spawn_tier
        self._extend = extend
        self._broker_epoch = -1
        self._image_waits_for: Check = lambda: ()
        self._log_is_proven = True  # for a node without other voters, whose log is the only one

    async def start(self) -> None:
        """Serve clients; returns when the tier runs, or waits for other brokers.

        Raises:
            ConfigError, DirectoryError, InternalTopicError, TierStartError, OSError: The start
            failed; `stop` undoes the part that was done.
        """
        self._secret = read_cluster_secret(self.config, self._ports.disk)
        log.info("files: at most %d can be open", raise_file_limit())
        self._warn_of_open_listeners()
        self._open_directories()
        await self._check_listeners()
        await self._start_http()
        await self._start_tier()
        await self._open_metadata()
        await self._open_logs()
        self._wire()
        await self._join()
        await self._listen()
        self.health.stage = "running"
        await self._begin_tier()
        if self._extend is not None:
            await self._extend(
                ServingParts(self._parts, self._server, self._cleaner, self.health, self._on_stop)
            )
        self._housekeeping.start(self.config.log_initial_task_delay_ms)
        self._on_stop(self._housekeeping.stop)
        self._cleaner.start()
        self._on_stop(self._cleaner.stop)
        await self._moves.resume(self._logs.interrupted)
        log.info(
            "started: node_id=%d cluster_id=%s partitions=%d",
            self.config.node_id,
            self._directories.cluster_id,
            len(self._replicas.partitions),
        )

    # -- up, in this order

    async def _check_listeners(self) -> None:
        """Refuse a port that is taken before anything is written or registered.

        The listeners are opened last. Until then clients are refused and try another broker.
        """
        limits = network_limits(self.config)
        for listener in listener_addresses(self.config):
            for sock in await self._ports.executors.reads.run(listen, listener, limits):
                sock.close()

    async def _start_tier(self) -> None:
        """Start the tier process; a plugin that refuses its settings ends the start here."""
        wiring = BrokerTier(self.config, self._directories, self._ports, self._spawn_tier)
        self._tier_wiring, self._tier = wiring, wiring.tier
        wiring.show(self.health, self._metrics_page)
        if self._tier is not None:
            self._on_stop(self._tier.stop)
            await self._tier.start()

    async def _open_metadata(self) -> None:
        """Open the metadata log on a thread; it is first because it has the logs' settings."""
        wiring = self._tier_wiring
        self._node = open_metadata_node(
            self.config, self._directories, self._ports, self._fail, wiring.before_install
        )
        self._on_stop(self._node.close)
        await self._open_node(self._node, self._settle_directories)
        await wiring.follow(self._node)
        self._removals = RemovalsRead(self._node)
        if self._node.is_alone:
            self._node.start()
            if moved := moved_voter(self.config, self._node.voters):
                log.warning(moved)
            await self._node.ready()
        else:
            await self._take_part()
        self.live = LiveConfig(self.config, self._image)

    async def _take_part(self) -> None:
        """Join the quorum or follow it; returns when this node has caught up with the leader."""
        check_secret_among_several(self.config, self._node.plan.voters)
        member = QuorumMember(self.config, self._directories, self._node, self._ports)
        quorum = await member.begin(self.health, self._on_stop, self._end)
        clock = self._ports.clock
        waits = "; ".join
        self.health.progress = lambda: waits(quorum.waits_for(clock.monotonic_ms()))
        await self._node.ready()
        self.health.progress = lambda: ""
        await member.compare_again()
        member.check_registration(self._image())
        self._log_is_proven = member.log_is_proven
        await self._recovery_pool.run(self._settle_directories, self._image())
        self._image_waits_for = lambda: quorum.waits_for(clock.monotonic_ms())

    def _settle_directories(self, image: MetadataImage) -> None:
        """Decide which directories are used, before the metadata log is written to.

        Otherwise each refused start on an older copy of a directory would make the copy look newer.
        """
        self._is_missing_some = settle_directories(
            self._directories,
            image,
            log_dirs=self.config.log_dirs,
            node_id=self.config.node_id,
            disk=self._ports.disk,
            rng=self._ports.rng,
        )

    async def _open_logs(self) -> None:
        """Open the logs that the metadata assign to this broker, on threads."""
        self._opened = BrokerLogs(
            self.live, self._directories, self._ports, self.health, self._recovery_pool
        )
        self._logs = self._opened.manager
        self._logs.failures.on_offline = self._directory_failed
        self._mark = MarkKeeper(
            self._ports.disk,
            lambda: self._node.last_batch,
            lambda: [one.path for one in self._logs.online_dirs()],
        )
        self._on_stop(self._close_logs)
        read = self._removals.take()
        removed = read if self._log_is_proven else frozenset()
        await self._opened.open(self._image(), removed, is_missing_some=self._is_missing_some)
        self._is_missing_some = self._opened.is_missing_some

    async def _close_logs(self) -> None:
        if self._broker_epoch >= 0:
            await self._keep_mark()
        await self._opened.close(clean=self._clean, broker_epoch=self._broker_epoch)

    async def _keep_mark(self) -> None:
        """Record the last committed batch beside the partitions; housekeeping retries a failure."""
        try:
            await self._recovery_pool.run(self._mark.keep)
        except OSError as error:
            log.warning("a committed batch was not noted: %s", error)

    def _show_parts(self) -> None:
        """Show partitions and groups on the console page and in metrics."""
        tier = self._tier
        source = BrokerSource(self._node, self._replicas, self._groups, tier)
        self._console.show(source, lambda: {} if tier is None else tier.totals)
        ConsumerLag(source, self._ports.clock).register(self.metrics)

    def _wire(self) -> None:
        """Make the parts that serve clients; serve nothing yet."""
        ports, node_id = self._ports, self.config.node_id
        self._creation = TopicCreation(
            self._node.submit,
            defaults=self.live.topic_defaults,
            validate_config=self.live.validate_new_topic,
            rng=ports.rng,
            settled=lambda ids: self._replicas.hosting.settled(ids),  # noqa: PLW0108 (made below)
            backlog=lambda: self._replicas.hosting.backlog,
        )
        self._active = self._active_controller()
        self._on_stop(self._active.close)
        self._registration = self._life()
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
                assign=self._registration.assign,
                raise_epoch=self._leader_epochs.ask,
                leading=self._begin_leading(),
            ),
            validations=None if self._tier is None else self._tier.validations,
        )
        self._on_stop(self._replicas.stop)
        self._bootstraps = TierBootstraps(
            None if self._tier is None else self._tier.auxiliary_state, self._logs, ports
        )
        self._fetchers = ReplicaFetchers(
            lambda: self.live.current,
            image=self._image,
            broker_epoch=lambda: self._registration.epoch,
            bootstraps=self._bootstraps,
            ports=ports,
        )
        self._on_stop(self._fetchers.stop)
        self._moves = DirectoryMoves(
            self._logs,
            self._replicas,
            ports,
            lambda: self.live.current.replica_alter_log_dirs_io_max_bytes_per_second,
        )
        self._on_stop(self._moves.stop)
        self._replicas.listeners.append(self._fetchers.on_events)
        self._node.subscribe(self._fetchers.on_image)
        self._leader_epochs.on_refused = self._replicas.epoch_refused
        self._replicas.on_failure = self._fail
        self._replicas.hosting.is_missing_some = self._is_missing_some
        self._registration.on_assignment_failed = self._replicas.hosting.assignment_failed
        self._own_topics = AutoTopicCreation(
            lambda question, timeout_ms: self._active.ask(
                ApiKey.CREATE_TOPICS, VERSION, question, timeout_ms=timeout_ms
            ),
            self.live.topic_defaults,
        )
        self._groups = begin_groups(
            self._own_topics, self._node, self._replicas, self.config, ports
        )
        self._on_stop(self._groups.stop)
        self._show_parts()
        if self._tier is not None:
            self.health.warnings["kafka-controllers"] = self._foreign_controllers
            self._tier.removed_topics.are_listed = lambda: (
                self._active.serves(ApiKey.UPDATE_REMOVED_TOPICS) is not False
            )
            lifecycle = self._registration
            questions = ControllerQuestions(
                self._leader_epochs.ask, lifecycle.update_removed_topics, lifecycle.describe_quorum
            )
            self._tier.attach(self._replicas, self._node, questions)
        self._cleaner = make_cleaner(lambda: self.live.current, self._logs, ports)
        self._server = self._make_server()
        self._descriptors = self._creation.descriptors = BrokerDescriptors(
            self._node,
            self._registration,
            self._replicas,
            self._server.descriptors_for_partitions,
            ports.executors.pool(POOL, THREADS),
        )
        tasks = housekeeping_tasks(self.config, self._logs, ports.clock)
        tasks.append(Task("committed mark", KEEP_MS, self._mark.keep, in_pool=True))
        tasks.append(watch_disks(self._logs, self._tier, self.health, ports))
        self._housekeeping = Housekeeping(
            tasks,
            scheduler=self._ports.scheduler,
            pool=self._ports.executors.background,
        )
        register_replica_metrics(self.metrics, self._replicas, ports.executors)
        register_metadata_metrics(self.metrics, self._image, self._node)
        self._fetchers.register(self.metrics)
        self.health.warnings["followers"] = self._fetchers.problems
        self.health.checks["logs"] = lambda: offline_directories(self._logs.dirs)
        self.health.warnings["compaction"] = self._cleaner.problems
        self.health.checks["groups"] = self._groups.problems
        self.health.warnings["put-aside"] = lambda: put_aside(self._opened.aside)
        self.health.warnings["groups-data"] = self._groups.damages
        self.health.checks["partitions"] = lambda: offline_reasons(self._replicas.offline)

    def _begin_leading(self) -> Leading[Leader]:
        """Make the part that leads partitions with followers: ISR, and its requests."""
        ports, lifecycle = self._ports, self._registration
        leading: Leading[Leader] = Leading(
            ports,
            image=self._image,
            broker_epoch=lambda: lifecycle.epoch,
            lag_ms_max=lambda: self.live.current.replica_lag_time_max_ms,
            bootstrap_hold_ms=self.config.tidemark_follower_bootstrap_hold_ms,
        )
        requests = IsrRequests(
            lambda asked: alter_partitions(
                self._active, self.config.node_id, lifecycle.epoch, asked
            ),
            ports.scheduler,
            ports.executors.commit,
        )
        leading.propose = requests.propose
        leading.start()
        self._on_stop(requests.stop)
        self._on_stop(leading.stop)
        register_leading(self.metrics, self.health, leading)
        return leading

    def _active_controller(self) -> ActiveController:
        """The client of the active controller, with handlers for a controller in this process."""
        own = own_handlers(
            self._node.submit,
            self._node.brokers,
            heartbeat_interval_ms=self.config.broker_heartbeat_interval_ms,
        )
        own[ApiKey.CREATE_TOPICS] = CreateTopicsHandler(self._creation, self.live, is_own=True)
        own[ApiKey.DESCRIBE_QUORUM] = DescribeQuorumHandler(self._node.describe)
        return ActiveController(
            self._node,
            own,
            self._ports,
            envelope_bytes_max=self.config.socket_request_max_bytes,
        )

    def _life(self) -> BrokerLifecycle:
        config = self.config
        store = None if self._tier is None else self._tier.store
        before = self._image().brokers.get(config.node_id)
        if store and before and before.remote_store not in (None, store):
            name = before.remote_store.class_name
            log.warning(
                "the remote tier has another store than in the last incarnation of this broker: "
                "class=%s "
                "before=%s; segments that are not in it are missed by those who read them",
                store.class_name,
                "the same with other settings" if name == store.class_name else name,
            )
        registration = Registration(
            config.node_id,
            self._opened.incarnation_id,
            advertised_endpoints(config),
            SUPPORTED_FEATURES,
            config.broker_rack,
            tuple(directory.directory_id for directory in self._logs.online_dirs()),
            keeps_directories=True,
            previous_epoch=self._logs.clean_epoch,
            remote_store=store,
        )
        settings = LifecycleSettings(
            cluster_id=self._node.cluster_id,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            offline_dirs=lambda: [
                one.directory_id for one in self._logs.dirs if one.failure is not None
            ],
            free_descriptors=self._free_descriptors,
            on_end=self._end,
        )
        lifecycle = BrokerLifecycle(
            self._active, self._node, registration, settings, self._ports.scheduler
        )
        self._on_stop(lifecycle.close)
        self.health.waits_for = lambda: (
            ("this broker is fenced: the active controller does not hear it",)
            if lifecycle.is_fenced
            else ()
        )
        return lifecycle

    async def _free_descriptors(self) -> int:
        return await self._descriptors.left()

    def _make_server(self) -> Server:
        ports = self._ports
        cluster = ClusterView(self.config.node_id, self._directories.cluster_id, self._image)
        parts = HandlerParts(
            config=self.config,
            live=self.live,
            cluster=cluster,
            creation=self._creation,
            own_topics=self._own_topics,
            node=self._node,
            registration=self._registration,
            replicas=self._replicas,
            logs=self._logs,
            groups=self._groups,
            tier=self._tier,
            ports=ports,
            active=self._active,
            bootstraps=self._bootstraps,
            moves=self._moves,
        )
        self._parts = parts
        limits, on_failure = network_limits(self.config), self._opened.file_failed
        server = Server(build_handlers(parts), limits, ports)
        server.read_failures.on_failure = on_failure
        if self._tier is not None:
            handlers = build_tier_handlers(parts)
            identity = (
                identity_of_lone_broker(ports.rng)
                if self._secret is None
                else identity_in_cluster(self._secret, cluster.cluster_id, ports.rng)
            )
            self._tier_listener = TierListener(
                handlers, limits, ports, cluster, identity, on_failure
            )
        return server

    async def _join(self) -> None:
        """Register, host the assigned replicas, and lead."""
        await self._register()
        await self._keep_mark()
        self._tier_wiring.show_registration(self.health, self._node)
        await self._opened.set_aside(self._removals.take())
        while removed := self._removals.take():  # read during the last call
            await self._opened.set_aside(removed)
        self._removals.end()
        self._replicas.apply(self._image(), None)
        self._node.subscribe(self._replicas.apply)
        await self._registration.unfence()
        await self._replicas.hosting.caught_up()
        watch = MembershipWatch(
            self.config.node_id,
            self._opened.incarnation_id,
            MembershipPorts(
                register=self._register,
                unfence=self._registration.come_back,
                waits_for=self._image_waits_for,
                on_end=self._end,
                clock=self._ports.clock,
                scheduler=self._ports.scheduler,
            ),
        )
        self.health.checks["membership"] = watch.problems
        self._node.subscribe(lambda image, _delta: watch.see(image))
        watch.begin(self._image())
        self._watch = watch

    async def _register(self) -> None:
        self._broker_epoch = await self._registration.register(
            await run_in_steps(found_replicas.steps(self._logs)),
            refused=refused_replicas(self._logs, self._image()),
            is_missing_some=self._is_missing_some,
        )
        try:
            await self._recovery_pool.run(
                self._logs.note_running_incarnation, self._broker_epoch, self._opened.incarnation_id
            )
        except OSError as error:
            log.warning("a kill of this process will count as an unclean end: %s", error)

    async def _listen(self) -> None:
        await self._server.start(listener_addresses(self.config))
        self._on_stop(self._server.stop)
        # parked requests are answered while their connections are open
        self._on_stop(self._groups.stop)
        # Leadership moves before connections close, so that clients find the new leaders.
        self._on_stop(self._registration.leave)
        self._on_stop(self._watch.end)
        for name, (host, port) in self._server.bound.items():
            log.info("listening: listener=%s address=%s:%d", name, host, port)
        await self._listen_to_controllers()

    async def _listen_to_controllers(self) -> None:
        """Open the controllers' listener for tools, as a separate controller would."""
        if not self._node.is_alone:
            return  # open since it joined the quorum
        changes = ChangeParts(
            live=self.live,
            cluster=ClusterView(self.config.node_id, self._node.cluster_id, self._image),
            creation=self._creation,
            submit=self._node.submit,
            brokers=self._node.brokers,
            own_broker_id=self.config.node_id,
            clock=self._ports.clock,
            settled=self._replicas.hosting.settled,
        )
        listener = ControllersListener(self.config, self._node, changes, self._ports)
        await listener.open_if_it_can()
        self._on_stop(listener.close)

    async def _begin_tier(self) -> None:
        """Start the tier; if its topic waits for other brokers, serve without it until then."""
        if self._tier is None:
            return
        if await self._tier_wiring.ensure_topic(self._node, self._own_topics):
            await self._connect_tier()
            return
        log.warning("the tier waits: %s", self._tier_wiring.waits_for)
        connecting = asyncio.create_task(self._connect_tier_later())

        async def stop() -> None:
            connecting.cancel()
            await asyncio.wait([connecting])

        self._on_stop(stop)

    async def _connect_tier_later(self) -> None:
        try:
            await self._tier_wiring.ensure_topic(self._node, self._own_topics, waits=True)
            await self._connect_tier()
        except Exception as error:  # noqa: BLE001 - the process ends with this error
            self._end(error)

    async def _connect_tier(self) -> None:
        """Open the listener for the tier's Kafka clients, and connect the tier to it."""
        assert self._tier is not None
        node_id = self.config.node_id
        self.health.checks["remote-metadata"] = lambda: remote_metadata_problems(
            self._image(), node_id
        )
        self.health.notes["remote-metadata"] = lambda: remote_metadata_notes(self._image())
        place, advertised = self.config.tier_listener, self.config.advertised_tier_listener
        settings = (
            await self._tier_listener.open()
            if place is None or advertised is None
            else await self._tier_listener.open_in_cluster(place, advertised)
        )
        self._on_stop(self._tier_listener.close)
        self._on_stop(self._tier.stop)
        await self._tier_wiring.connect(self._node, self._replicas, self.live, settings)

    # -- facts

    def _foreign_controllers(self) -> tuple[str, ...]:
        """The tier's health warning while the active controller is Apache Kafka's."""
        is_foreign = self._active.serves(ApiKey.RAISE_LEADER_EPOCHS) is False
        return (HealthReason.KAFKA_CONTROLLERS.text(),) if is_foreign else ()

    def _directory_failed(self, directory: LogDir) -> None:
        """A log directory went offline; as in Kafka, the broker stops if it was the last one."""
        if not self._logs.online_dirs():
            self._end(KafkaStorageError(f"no log directory works any more: {directory.failure}"))
        elif self._broker_epoch >= 0:
            self._registration.report_directories()

    def _image(self) -> MetadataImage:
        return self._node.image
