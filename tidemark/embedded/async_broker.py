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
        """See `Broker`."""
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
        """See `Broker.start`; where it is cancelled, no broker is left."""
        try:
            await beside(self._broker.start, node_id)
        except asyncio.CancelledError:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """See `Broker.close`."""
        await beside(self._broker.close)

    async def stop(self, node_id: int | None = None) -> None:
        """See `Broker.stop`."""
        await beside(self._broker.stop, node_id)

    async def kill(self, node_id: int | None = None) -> None:
        """See `Broker.kill`."""
        await beside(self._broker.kill, node_id)

    async def restart(self, node_id: int | None = None) -> None:
        """See `Broker.restart`."""
        await beside(self._broker.restart, node_id)

    async def pause(self, node_id: int | None = None) -> None:
        """See `Broker.pause`."""
        await beside(self._broker.pause, node_id)

    async def resume(self, node_id: int | None = None) -> None:
        """See `Broker.resume`."""
        await beside(self._broker.resume, node_id)

    async def isolate(self, node_id: int | None = None, *, clients: bool = True) -> None:
        """See `Broker.isolate`."""
        await beside(self._broker.isolate, node_id, clients=clients)

    async def heal(self, node_id: int | None = None) -> None:
        """See `Broker.heal`."""
        await beside(self._broker.heal, node_id)

    async def restore(self) -> None:
        """See `Broker.restore`."""
        await beside(self._broker.restore)

    async def advance(self, duration: str | timedelta) -> None:
        """See `Broker.advance`."""
        await beside(self._broker.advance, duration)

    async def tier(self, topic: str, *, timeout_s: float = 60.0) -> list[dict[str, int]]:
        """See `Broker.tier`."""
        return await beside(self._broker.tier, topic, timeout_s=timeout_s)

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """See `Broker.create_topic`."""
        return await beside(self._broker.create_topic, name, partitions, configs)

    async def status(self, node_id: int | None = None) -> dict[str, Any]:
        """See `Broker.status`."""
        return await beside(self._broker.status, node_id)

    async def control(
        self, command: str, node_id: int | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        """See `Broker.control`."""
        return await beside(self._broker.control, command, node_id, **arguments)

    @property
    def faults(self) -> AsyncFaults:
        """See `Broker.faults`."""
        return AsyncFaults(self._broker.faults)

    def faults_on(self, node_id: int) -> AsyncFaults:
        """See `Broker.faults_on`."""
        return AsyncFaults(self._broker.faults_on(node_id))

    @property
    def broker_pids(self) -> dict[int, int]:
        """See `Broker.broker_pids`."""
        return self._broker.broker_pids

    @property
    def is_running(self) -> bool:
        """See `Broker.is_running`."""
        return self._broker.is_running

    @property
    def controller_pids(self) -> dict[int, int]:
        """See `Broker.controller_pids`."""
        return self._broker.controller_pids

    @property
    def bootstrap_servers(self) -> str:
        """See `Broker.bootstrap_servers`."""
        return self._broker.bootstrap_servers

    @property
    def console_url(self) -> str:
        """See `Broker.console_url`."""
        return self._broker.console_url

    @property
    def data_dir(self) -> Path:
        """See `Broker.data_dir`."""
        return self._broker.data_dir

    @property
    def log_file(self) -> Path:
        """See `Broker.log_file`."""
        return self._broker.log_file

    @property
    def log_files(self) -> dict[int, Path]:
        """See `Broker.log_files`."""
        return self._broker.log_files

    def producer(self, **config: Any) -> "Producer":
        """See `Broker.producer`."""
        return self._broker.producer(**config)

    def consumer(self, group_id: str | None = None, **config: Any) -> "Consumer":
        """See `Broker.consumer`."""
        return self._broker.consumer(group_id, **config)

    def admin(self, **config: Any) -> "AdminClient":
        """See `Broker.admin`."""
        return self._broker.admin(**config)
