"""The frame of both kinds of process: open directories, serve pages, end, and stop in order.

A part that is started pushes its undoing; a stop undoes all of them in the reverse order.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.config.listeners import is_loopback
from broker.node.directories import Directories, open_directories
from broker.node.endpoints import resolve_ports
from broker.node.start_jobs import StopMark, beside_the_loop
from broker.observe.health import Health, routes
from broker.observe.http import HttpServer, pages
from broker.observe.metrics import MetricsPage
from broker.process.console import ConsoleWiring
from kafka_protocol.errors import KafkaError
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.node import MetadataNode
from runtime.executors import Pool
from runtime.health_reasons import HealthReason
from runtime.incidents import Incident
from runtime.ports import Ports
from runtime.process_metrics import register_build, register_process

log = logging.getLogger(__name__)

Undo = Callable[[], Awaitable[object] | None]


class ServerProcess(ABC):
    """A process of the running event loop; each kind has its own `start`.

    Attributes:
        config: The given configuration; each port 0 is replaced by the chosen port.
        health: The state that the health pages show.
        metrics: All metrics of the process.
        fatal: Fails when the process cannot continue and must be stopped.
        http_address: Host and port of the pages, once they are served; None: there are none.
    """

    def __init__(self, config: BrokerConfig, ports: Ports) -> None:
        """Take the parts; nothing is opened yet.

        Args:
            config: Its settings.
            ports: For this process alone: the pools end with it.
        """
        self.config = resolve_ports(config)
        self.metrics = ports.metrics
        self.health = Health(config.node_id)
        self.fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ports = ports
        self._metrics_page = MetricsPage(ports.metrics)
        register_process(ports.metrics)
        register_build(ports.metrics)
        self._console: ConsoleWiring  # by `_start_http`
        self.http_address: tuple[str, int] | None = None
        self._undo: list[Undo] = []
        self._clean = False
        self._directories: Directories  # by `_open_directories`

    @abstractmethod
    async def start(self) -> None:
        """Serve.

        Raises:
            ConfigError, DirectoryError, QuorumConfigError, OSError and others: It cannot; `stop`
                undoes all parts that were started until then.
        """

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
            except (OSError, KafkaError) as error:
                self._clean = False
                log.error(Incident.PART_NOT_STOPPED.line(error=error))  # noqa: TRY400 - no defect
            except Exception:
                self._clean = False
                log.exception(Incident.DEFECT.line(what="a part did not stop cleanly"))
        log.info("stopped: node_id=%d", self.config.node_id)

    def _on_stop(self, undo: Undo) -> None:
        self._undo.append(undo)

    # -- the beginning of each start

    def _warn_of_open_listeners(self) -> None:
        """Log the listeners that are open to other machines: clients are not authenticated."""
        shown = [str(one) for one in self.config.listeners if not is_loopback(one.host)]
        if shown:
            log.warning(
                "whoever reaches these listeners may do everything, nobody is asked who he is: "
                "listeners=%s; bind them to an address that only you reach, or keep others away "
                "by a firewall",
                ",".join(shown),
            )

    def _open_directories(self) -> None:
        """Lock and check the directories; at a stop the pools end before the locks go."""
        self._directories = open_directories(
            self.config.log_dirs,
            metadata_path=self.config.metadata_log_dir,
            node_id=self.config.node_id,
            disk=self._ports.disk,
        )
        self._on_stop(self._directories.release)
        self._on_stop(self._ports.executors.shutdown)

    async def _start_http(self) -> None:
        self._console = ConsoleWiring(self.config, self.health, self._ports)
        address = self.config.http_listener
        if address is None:
            return
        others = pages(routes(self.health, self._metrics_page))
        server = HttpServer(*address, self._console.respond_or(others, address[0]))
        try:
            await server.start()
        except OSError as error:
            shown = f"{address[0]}:{address[1]}"
            raise ConfigError("tidemark.http.listener", shown, f"cannot listen: {error}") from error
        self._on_stop(server.stop)
        self._on_stop(self._console.begin())
        self.http_address = (address[0], server.port)
        log.info("serving metrics and health: address=%s:%d", address[0], server.port)

    async def _open_node(self, node: MetadataNode, check: Callable[[MetadataImage], None]) -> None:
        """Read the metadata log beside the event loop; nothing is written before `check`."""
        mark = StopMark()
        self.health.progress = lambda: "reading the metadata log"
        try:
            opening = partial(node.open, check, mark.check)
            await beside_the_loop(self._recovery_pool, opening, stop=mark.stop)
        finally:
            self.health.progress = lambda: ""
        self.health.checks["controller"] = node.controller_problems
        self.health.checks["snapshots"] = node.snapshot_problems

    @property
    def _recovery_pool(self) -> Pool:
        """A pool for work at the start that waits for disks or for threads that open logs."""
        return self._ports.executors.pool("log-recovery", 1)

    # -- the end

    def _fail(self, error: BaseException) -> None:
        """The metadata node cannot continue."""
        self.health.checks["metadata"] = lambda: [HealthReason.METADATA_LOG.line(error=error)]
        self._end(error)

    def _end(self, error: BaseException) -> None:
        """Fail `fatal`, unless it has failed: the caller of `start` then stops the process."""
        if not self.fatal.done():
            self.fatal.set_exception(error)
