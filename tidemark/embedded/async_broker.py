"""`tidemark.AsyncBroker`: the same broker for suites that run in an event loop."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidemark.embedded.async_faults import AsyncFaults, beside
from tidemark.embedded.broker import Broker
from tidemark.embedded.topics import Topics

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient


class AsyncBroker:
    """`tidemark.Broker` with methods that are awaited; the event loop continues meanwhile.

    Members mean what they mean there. Clients are confluent_kafka's; others (aiokafka, say) are
    given `bootstrap_servers`.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        topics: Topics | None = None,
        *,
        brokers: int = 1,
        controllers: int = 0,
        start_timeout_s: float = 60.0,
    ) -> None:
        """Say what it is to be; nothing is started."""
        self._broker = Broker(
            data_dir,
            settings,
            topics,
            brokers=brokers,
            controllers=controllers,
            start_timeout_s=start_timeout_s,
        )

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await beside(self._broker.__exit__, kind, error, trace)

    async def start(self, node_id: int | None = None) -> Self:
        """Where it is cancelled, no broker is left."""
        try:
            await beside(self._broker.start, node_id)
        except asyncio.CancelledError:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """End it permanently; what lay in a temporary directory is removed."""
        await beside(self._broker.close)

    async def stop(self, node_id: int | None = None) -> None:
        """Stop it as an operator does; the data stay for `start`."""
        await beside(self._broker.stop, node_id)

    async def kill(self, node_id: int | None = None) -> None:
        """Kill it with SIGKILL, and its tier; the data stay as they are, for `start`."""
        await beside(self._broker.kill, node_id)

    async def restart(self, node_id: int | None = None) -> None:
        """Stop it if it runs and start it on the same data, port and clock."""
        await beside(self._broker.restart, node_id)

    async def pause(self, node_id: int | None = None) -> None:
        """Have it stand still with all its connections open, until `resume`."""
        await beside(self._broker.pause, node_id)

    async def resume(self, node_id: int | None = None) -> None:
        """Let it continue after `pause`."""
        await beside(self._broker.resume, node_id)

    async def isolate(self, node_id: int | None = None, *, clients: bool = True) -> None:
        """Cut a broker off from all other nodes until `heal`, or until it is stopped or killed."""
        await beside(self._broker.isolate, node_id, clients=clients)

    async def heal(self, node_id: int | None = None) -> None:
        """Connect a broker again after `isolate`; nothing happens where it is connected."""
        await beside(self._broker.heal, node_id)

    async def restore(self) -> None:
        """Start, resume and heal all nodes; return when all brokers may have replicas again."""
        await beside(self._broker.restore)

    async def advance(self, duration: str | timedelta) -> None:
        """Let time pass for brokers and tier; what is due by then is done when this returns."""
        await beside(self._broker.advance, duration)

    async def tier(self, topic: str, *, timeout_s: float = 60.0) -> list[dict[str, int]]:
        """Have all of a topic copied to the remote tier and dropped here; reads come from there."""
        return await beside(self._broker.tier, topic, timeout_s=timeout_s)

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic, with the broker's default replication factor."""
        return await beside(self._broker.create_topic, name, partitions, configs)

    async def status(self, node_id: int | None = None) -> dict[str, Any]:
        """Stage, health with reasons, wall clock, and the tier's process, of one broker."""
        return await beside(self._broker.status, node_id)

    async def control(
        self, command: str, node_id: int | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        """Send a command to the control listener of one broker; None: the only one."""
        return await beside(self._broker.control, command, node_id, **arguments)

    @property
    def faults(self) -> AsyncFaults:
        """Faults on demand, of the only broker."""
        return AsyncFaults(self._broker.faults)

    def faults_on(self, node_id: int) -> AsyncFaults:
        """Faults on demand, of one broker."""
        return AsyncFaults(self._broker.faults_on(node_id))

    @property
    def broker_pids(self) -> dict[int, int]:
        """Processes of the brokers that run, by id."""
        return self._broker.broker_pids

    @property
    def is_running(self) -> bool:
        """Whether there is a broker process, a paused one included; never waits."""
        return self._broker.is_running

    @property
    def controller_pids(self) -> dict[int, int]:
        """Processes of nodes that run and are only controllers, by id."""
        return self._broker.controller_pids

    @property
    def bootstrap_servers(self) -> str:
        """host:port for clients, of all brokers."""
        return self._broker.bootstrap_servers

    @property
    def console_url(self) -> str:
        """Address of the (first) broker's page, to look at while a debugger waits."""
        return self._broker.console_url

    @property
    def data_dir(self) -> Path:
        """Where its data lie."""
        return self._broker.data_dir

    @property
    def log_file(self) -> Path:
        """The log of the (first) broker; logs of other nodes lie beside it."""
        return self._broker.log_file

    @property
    def log_files(self) -> dict[int, Path]:
        """The log file of each node, by its id."""
        return self._broker.log_files

    def producer(self, **config: Any) -> "Producer":
        """Make a producer; settings as keywords with `_` for `.`, or as `**{"linger.ms": 5}`."""
        return self._broker.producer(**config)

    def consumer(self, group_id: str | None = None, **config: Any) -> "Consumer":
        """Make a consumer that begins at the earliest record."""
        return self._broker.consumer(group_id, **config)

    def admin(self, **config: Any) -> "AdminClient":
        """Make an admin client; settings as of `producer`."""
        return self._broker.admin(**config)
