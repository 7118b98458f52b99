"""A process that is only a controller, from start to stop.

Up: directories checked and locked, the metadata log read, the controllers' listener, and last the
replica, which may then be elected. It opens no tier and no partition's log. Down: the replica hands
its lead over while it still hears the others, then the listener, the log and the directories.
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
