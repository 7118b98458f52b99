"""`tidemark.AsyncBroker`: the same broker for suites that run in an event loop."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidemark.embedded.async_faults import AsyncFaults, beside
from tidemark.embedded.broker import Broker, Topics

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient


class AsyncBroker:
    """`tidemark.Broker` with methods that are awaited; the event loop goes on meanwhile.

    Members mean what they mean there. Clients are confluent_kafka's; others (aiokafka, say) are
    given `bootstrap_servers`.

    Attributes:
        faults: on demand.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        topics: Topics | None = None,
        *,
        controllers: int = 0,
        start_timeout_s: float = 60.0,
    ) -> None:
        """See `Broker`."""
        self._broker = Broker(
            data_dir, settings, topics, controllers=controllers, start_timeout_s=start_timeout_s
        )
        self.faults = AsyncFaults(self._broker.faults)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> Self:
        """See `Broker.start`; where it is cancelled, no broker is left."""
        try:
            await beside(self._broker.start)
        except asyncio.CancelledError:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """See `Broker.close`."""
        await beside(self._broker.close)

    async def stop(self) -> None:
        """See `Broker.stop`."""
        await beside(self._broker.stop)

    async def kill(self) -> None:
        """See `Broker.kill`."""
        await beside(self._broker.kill)

    async def restart(self) -> None:
        """See `Broker.restart`."""
        await beside(self._broker.restart)

    async def pause(self) -> None:
        """See `Broker.pause`."""
        await beside(self._broker.pause)

    async def resume(self) -> None:
        """See `Broker.resume`."""
        await beside(self._broker.resume)

    async def advance(self, duration: str | timedelta) -> None:
        """See `Broker.advance`."""
        await beside(self._broker.advance, duration)

    async def tier(self, topic: str, *, timeout_s: float = 60.0) -> list[dict[str, int]]:
        """See `Broker.tier`."""
        return await beside(self._broker.tier, topic, timeout_s=timeout_s)

    async def status(self) -> dict[str, Any]:
        """See `Broker.status`."""
        return await beside(self._broker.status)

    async def control(self, command: str, **arguments: Any) -> dict[str, Any]:
        """See `Broker.control`."""
        return await beside(self._broker.control, command, **arguments)

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
    def data_dir(self) -> Path:
        """See `Broker.data_dir`."""
        return self._broker.data_dir

    @property
    def log_file(self) -> Path:
        """See `Broker.log_file`."""
        return self._broker.log_file

    def producer(self, **config: Any) -> "Producer":
        """See `Broker.producer`."""
        return self._broker.producer(**config)

    def consumer(self, group_id: str | None = None, **config: Any) -> "Consumer":
        """See `Broker.consumer`."""
        return self._broker.consumer(group_id, **config)

    def admin(self, **config: Any) -> "AdminClient":
        """See `Broker.admin`."""
        return self._broker.admin(**config)
