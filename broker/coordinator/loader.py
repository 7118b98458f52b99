"""Loads shards one after the other, on one thread; each is served as soon as it is loaded.

More threads would share the interpreter lock, so that all shards would be served late.
"""

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Final

from broker.coordinator.loading import Load, LoadAborted
from broker.coordinator.metrics import GroupMetrics
from broker.coordinator.shard import Shard, ShardStage
from local_log.log.partition_log import PartitionLog
from runtime.incidents import Incident
from runtime.ports import Ports

log = logging.getLogger(__name__)

_LOGGED_FROM_MS: Final = 100
"""A load of this duration or longer is logged."""


class Loader:
    """The queue of shards to load."""

    def __init__(self, ports: Ports, chunk_bytes: int, metrics: GroupMetrics) -> None:
        """Load nothing yet; `chunk_bytes` is that of `Load`."""
        self._clock, self._disk, self._metrics = ports.clock, ports.disk, metrics
        self._pool = ports.executors.pool("group-loading", 1)
        self._chunk_bytes = chunk_bytes
        self._queue: deque[tuple[Shard, Load]] = deque()
        self._task: asyncio.Task[None] | None = None

    def load(self, shard: Shard) -> None:
        """Activate the shard when its log is read; at once if its log is empty."""
        load = Load(
            shard.partition.log, shard.state, disk=self._disk, chunk_bytes=self._chunk_bytes
        )
        if load.is_empty:
            self._damaged(shard, 0)
            shard.activate()
            return
        self._queue.append((shard, load))
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Clear the queue; returns when the thread reads no more."""
        self._queue.clear()
        if self._task is not None:
            await self._task

    def _damaged(self, shard: Shard, count: int) -> None:
        """Count the damaged places that the load found, and those found at the log's opening."""
        shard.damaged = count + len(shard.partition.log.damages)
        self._metrics.damaged_records.inc(shard.damaged)

    async def _run(self) -> None:
        while self._queue:
            shard, load = self._queue.popleft()
            try:
                await self._load(shard, load)
            except Exception:  # the other shards continue
                log.exception(
                    Incident.DEFECT.line(what=f"{shard.partition.topic_partition} cannot be loaded")
                )
                shard.close(ShardStage.FAILED)
        self._task = None

    async def _has_moved(self, shard: Shard, partition_log: PartitionLog) -> bool:
        """True if another log replaced this one before its files were open.

        Nothing has been replayed in that case. Waits until the replacement is complete.
        """
        if not partition_log.health.is_closed:
            return False
        here = asyncio.get_running_loop().create_future()
        partition_log.lease.when_here(partial(here.set_result, None))
        await here
        return shard.stage is ShardStage.LOADING and shard.partition.log is not partition_log

    async def _load(self, shard: Shard, load: Load) -> None:
        name, began_ms = shard.partition.topic_partition, self._clock.monotonic_ms()
        try:
            await load.run(self._pool, lambda: shard.stage is ShardStage.LOADING)
        except LoadAborted:
            log.info("%s: loading ends, it is led elsewhere now", name)
            return
        except OSError as error:
            if await self._has_moved(shard, load.log):
                self.load(shard)
                return
            log.error(Incident.GROUPS_NOT_LOADED.line(partition=name, error=error))  # noqa: TRY400 - the disk's fault
            shard.close(ShardStage.FAILED)
            return
        self._damaged(shard, load.report.damaged)
        shard.activate()
        took_ms, report = self._clock.monotonic_ms() - began_ms, load.report
        self._metrics.loaded(took_ms)
        if took_ms >= _LOGGED_FROM_MS:
            log.info(
                "%s: loaded: records=%d size_bytes=%d took_ms=%d",
                name,
                report.records,
                report.size_bytes,
                took_ms,
            )
