"""Metrics of the broker's logs and partitions.

All of them are computed at a scrape, so they cost nothing between two scrapes. Names are those of
Kafka's JMX beans as the JMX exporter writes them.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from broker.observe.http import PROMETHEUS, HttpAnswer
from broker.replica.fetch_watch import SLICE_PARTITIONS
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from runtime.executors import Executors
from runtime.metrics import GaugeFn, Labelled, Registry


def register_replica_metrics(
    metrics: Registry, replicas: ReplicaManager, executors: Executors
) -> None:
    """Register the gauges of logs, disks and waiting requests."""
    _register_logs(metrics, replicas)
    _register_disks(metrics, replicas, executors)
    _register_waits(metrics, replicas)


def _register_disks(metrics: Registry, replicas: ReplicaManager, executors: Executors) -> None:
    def calls() -> Iterator[Labelled]:
        for name, count in executors.waiting().items():
            yield (name,), count

    metrics.gauge("tidemark_pool_waiting_calls", "Calls no thread has begun.", ("pool",), calls)
    metrics.gauge(
        "tidemark_replicas_unsettled",
        "Changes of partitions here that wait for a disk.",
        fn=lambda: replicas.hosting.backlog,
    )


def _register_waits(metrics: Registry, replicas: ReplicaManager) -> None:
    loop = asyncio.get_running_loop()
    metrics.gauge(
        "tidemark_event_loop_tasks",
        "Coroutines that run or wait on the event loop.",
        fn=lambda: len(asyncio.all_tasks(loop)),
    )

    def parked() -> Iterator[Labelled | None]:
        found: set[object] = set()
        for number, partition in enumerate(list(replicas.partitions.values()), 1):
            found.update(watch for watch in partition.watches if watch.parked is not None)
            found.update(partition.waiters)
            if number % SLICE_PARTITIONS == 0:
                yield None
        yield ("Fetch",), len(found)

    metrics.gauge(
        "kafka_server_DelayedOperationPurgatory_PurgatorySize",
        "Requests that wait for bytes, or for a validation, of partitions.",
        ("delayedOperation",),
        parked,
    )


def _register_logs(metrics: Registry, replicas: ReplicaManager) -> None:
    facts: dict[str, tuple[str, Callable[[Partition], float]]] = {
        "Size": ("Bytes of the local log.", lambda p: p.log.size_bytes),
        "NumLogSegments": ("Segments of the local log.", lambda p: len(p.log.segments.all)),
        "LogStartOffset": ("First offset, local or remote.", lambda p: p.log.log_start_offset),
        "LogEndOffset": ("First offset not yet written.", lambda p: p.log.log_end_offset),
    }
    for name, (text, fact) in facts.items():
        metrics.gauge(
            f"kafka_log_Log_{name}", text, ("topic", "partition"), _per_partition(replicas, fact)
        )
    metrics.gauge(
        "kafka_log_LogManager_OfflineLogDirectoryCount",
        "Log directories that failed.",
        fn=lambda: sum(directory.failure is not None for directory in replicas.logs.dirs),
    )
    metrics.gauge(
        "kafka_server_ReplicaManager_PartitionCount",
        "Partitions hosted here.",
        fn=lambda: len(replicas.partitions),
    )
    metrics.gauge(
        "kafka_server_ReplicaManager_LeaderCount",
        "Partitions led here.",
        fn=lambda: sum(p.is_leader for p in replicas.partitions.values()),
    )


def _per_partition(replicas: ReplicaManager, fact: Callable[[Partition], float]) -> GaugeFn:
    def collect() -> Iterator[Labelled]:
        for partition in list(replicas.partitions.values()):
            yield (partition.topic, str(partition.partition)), fact(partition)

    return collect


class OtherProcess(Protocol):
    """Another process of this broker with metrics."""

    async def page(self) -> Sequence[bytes]:
        """Its newest page in pieces, soon; it has none of this process's metric names."""
        ...


class MetricsPage:
    """Answers scrapes; those that come while a page is being made share it.

    Attributes:
        others: Processes whose pages follow this one's.
    """

    def __init__(self, metrics: Registry) -> None:
        self._metrics = metrics
        self._making: asyncio.Task[HttpAnswer] | None = None
        self.others: list[OtherProcess] = []

    async def answer(self) -> HttpAnswer:
        """The page; the event loop runs other work while it is made."""
        if self._making is None:
            self._making = asyncio.create_task(self._make())
        # Shielded: other scrapes may wait for it when this one is cancelled.
        return await asyncio.shield(self._making)

    async def _make(self) -> HttpAnswer:
        try:
            theirs = [piece for other in self.others for piece in await other.page()]
            pieces = []
            for piece in self._metrics.pieces():
                pieces.append(piece)
                await asyncio.sleep(0)
            return HttpAnswer(200, PROMETHEUS, b"", [*pieces, *theirs])
        finally:
            self._making = None
