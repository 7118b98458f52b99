"""A process that is only a controller, from start to stop.

Start: directories are checked and locked, the metadata log is read, the controllers' listener
opens, and last the replica starts, which may then be elected. No tier and no partition's log is
opened. Stop: the replica hands over its leadership while it can reach the others, then the
listener, the log and the directories close.
"""

import logging

from broker.config.broker_config import BrokerConfig
from broker.node.metadata_log import open_metadata_node
from broker.observe.cluster_metrics import register_metadata_metrics
from broker.observe.health import Health
from broker.process.console import NodeSource
from broker.process.quorum_member import QuorumMember
from broker.process.server_process import ServerProcess
from metadata_topic.image.image import MetadataImage
from runtime.disk import raise_file_limit
from runtime.ports import Ports

log = logging.getLogger(__name__)


class Controller(ServerProcess):
    """A controller without a broker."""

    def __init__(self, config: BrokerConfig, ports: Ports) -> None:
        """Make a controller on the running event loop; nothing is opened before `start`.

        Args:
            config: Settings of the controller.
            ports: Used by this controller alone: it stops their pools.
        """
        super().__init__(config, ports)
        self.health = Health(config.node_id, kind="controller")

    async def start(self) -> None:
        """Join the quorum; returns before a leader is known.

        Raises:
            ConfigError, DirectoryError, QuorumConfigError, UnusableMetadataError, OSError: The
            start failed; `stop` undoes the part that was done.
        """
        log.info("files: at most %d can be open", raise_file_limit())
        self._warn_of_open_listeners()
        self._open_directories()
        await self._start_http()
        self._node = open_metadata_node(self.config, self._directories, self._ports, self._fail)
        self._on_stop(self._node.close)
        await self._open_node(self._node, lambda _image: None)
        register_metadata_metrics(self.metrics, self._image, self._node)
        self._console.show(NodeSource(self._node))
        member = QuorumMember(self.config, self._directories, self._node, self._ports)
        quorum = await member.begin(self.health, self._on_stop, self._end)
        clock = self._ports.clock
        self.health.waits_for = lambda: quorum.waits_for(clock.monotonic_ms())
        self.health.stage = "running"
        log.info(
            "started: node_id=%d cluster_id=%s", self.config.node_id, self._directories.cluster_id
        )

    def _image(self) -> MetadataImage:
        return self._node.image
