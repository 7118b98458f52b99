"""A process that is only a controller, from start to stop.

Up: directories checked and locked, the metadata log read, the controllers' listener, and last the
replica, which may then be elected. It opens no tier and no partition's log. Down: the replica hands
its lead over while it still hears the others, then the listener, the log and the directories.
"""

import asyncio
import logging

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.handlers.controllers.changes import ChangeParts, creation_without_broker
from broker.node.endpoints import controller_endpoints
from broker.node.identity_check import Identity
from broker.node.metadata_log import open_metadata_node
from broker.node.moved_voter import moved_voter
from broker.node.raft_config import fetch_timeout_ms
from broker.node.roles import check_roles
from broker.observe.cluster_metrics import register_metadata_metrics
from broker.observe.health import Health
from broker.observe.quorum_health import QuorumHealth
from broker.process.controllers_listener import ControllersListener
from broker.process.identity_watch import IdentityWatch, watch_on
from broker.process.server_process import ServerProcess
from broker.topics.cluster import ClusterView
from kafka_protocol.files.meta_properties import META_PROPERTIES
from metadata_topic.image.image import MetadataImage
from metadata_topic.raft.voters import ReplicaKey
from runtime.disk import raise_file_limit
from runtime.ports import Ports

log = logging.getLogger(__name__)


class Controller(ServerProcess):
    """A controller without a broker."""

    def __init__(self, config: BrokerConfig, ports: Ports) -> None:
        """Make a controller of the running event loop; nothing is touched before `start`.

        Args:
            config: its settings.
            ports: of its own: the pools end with it.
        """
        super().__init__(config, ports)
        self.health = Health(config.node_id, kind="controller")

    async def start(self) -> None:
        """Take part in the quorum; returns before a leader is known.

        Raises:
            ConfigError, DirectoryError, QuorumConfigError, UnusableMetadataError, OSError: it
                cannot; `stop` undoes what was started until then.
        """
        check_roles(self.config)
        log.info("files: at most %d can be open", raise_file_limit())
        self._open_directories()
        await self._start_http()
        self._node = open_metadata_node(self.config, self._directories, self._ports, self._fail)
        self._on_stop(self._node.close)
        await self._open_node(self._node, lambda _image: None)
        watch = self._identity_watch()
        await watch.before_the_start()
        register_metadata_metrics(self.metrics, self._image, self._node)
        await self._listen()
        self._node.start()
        if moved := moved_voter(self.config, self._node.voters):
            log.warning(moved)
        watching = watch_on(watch, self._end)
        self._on_stop(lambda: _cancelled(watching))
        self._watch_the_quorum()
        self.health.stage = "running"
        log.info(
            "started: node_id=%d cluster_id=%s", self.config.node_id, self._directories.cluster_id
        )

    async def _listen(self) -> None:
        node, live = self._node, LiveConfig(self.config, self._image)
        changes = ChangeParts(
            live=live,
            cluster=ClusterView(self.config.node_id, node.cluster_id, self._image),
            creation=creation_without_broker(node.submit, live, self._ports.dice),
            submit=node.submit,
            brokers=node.brokers,
        )
        listener = ControllersListener(self.config, node, changes, self._ports)
        await listener.open()
        self._on_stop(listener.close)
        # Before the listener: the others hear that this node does not lead any more.
        self._on_stop(node.close)

    def _identity_watch(self) -> IdentityWatch:
        directories, path = self._directories, self.config.metadata_log_dir
        key = ReplicaKey(self.config.node_id, directories.ids[path])
        me = Identity(key, directories.cluster_id, str(path / META_PROPERTIES))
        plan, own = self._node.plan, controller_endpoints(self.config)
        here = {(one.host, one.port) for one in own}
        others = [one for one in plan.controllers if (one.host, one.port) not in here]
        needed = plan.voters.majority if plan.voters.ids else len(others) // 2 + 1
        return IdentityWatch(me, plan.controllers, needed, self._ports)

    def _watch_the_quorum(self) -> None:
        clock, timeout_ms = self._ports.clock, fetch_timeout_ms(self.config)
        quorum = QuorumHealth(self._node, fetch_timeout_ms=timeout_ms, now_ms=clock.monotonic_ms())
        timer = self._ports.scheduler.every(
            max(timeout_ms // 2, 1), lambda: quorum.look(clock.monotonic_ms()), "quorum health"
        )
        self._on_stop(timer.cancel)
        self.health.checks["quorum"] = lambda: quorum.problems(clock.monotonic_ms())
        self.health.waits_for = lambda: quorum.waits_for(clock.monotonic_ms())

    def _image(self) -> MetadataImage:
        return self._node.image


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
