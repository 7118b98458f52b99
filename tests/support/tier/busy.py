"""One tier of many partitions, whose logs grow, with few copiers and a store that takes time."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

from kafka_protocol.types import TopicIdPartition
from rlm.config import TierConfig
from rlm.deletions import Deletions
from rlm.link.messages import (
    Assign,
    DescribeLog,
    Image,
    LogDescription,
    OpenSegment,
    PartitionSettings,
    RaiseLeaderEpoch,
    RaiseLogStart,
    Report,
    RestoreChain,
)
from rlm.maintenance.broker_port import OpenedFiles
from rlm.maintenance.manager import RemoteLogManager
from rlm.maintenance.performer import World
from rlm.plugin_calls import PluginCalls
from rlm.telemetry import Telemetry
from rlm.workers import COPIER_POOL, EXPIRATION_POOL, VALIDATION_POOL
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
)
from rsm_plugins.segment import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    SegmentState,
)
from tests.support.sim.ports import simulated
from tests.support.tier.log_in_memory import PARTITION, SimulatedBroker
from tests.support.tier.turns import TurnWorkers

INTERVAL_MS = 30_000
STEP_MS = 100


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(PARTITION.topic_id, number, PARTITION.topic)


class ManyLogs:
    """The broker's side of many partitions.

    Attributes:
        looks: how often one was asked for its log.
    """

    def __init__(self, count: int) -> None:
        self.logs = [SimulatedBroker(partition(number)) for number in range(count)]
        self.looks = 0

    def describe(self, question: DescribeLog) -> LogDescription:
        self.looks += 1
        return self.logs[question.partition].describe(question)

    def open_segment(self, question: OpenSegment) -> OpenedFiles:
        return self.logs[question.partition].open_segment(question)

    def report(self, report: Report) -> bool:
        taken = self.logs[report.partition].report(report)
        self.logs[report.partition].expire_local(keep=2)
        return taken

    def raise_log_start(self, request: RaiseLogStart) -> bool:
        return self.logs[request.partition].raise_log_start(request)

    def restore_chain(self, request: RestoreChain) -> bool:
        return self.logs[request.partition].restore_chain(request)

    def raise_leader_epoch(self, request: RaiseLeaderEpoch) -> str:
        return self.logs[request.partition].raise_leader_epoch(request)

    def image(self) -> Image:
        return self.logs[0].image()

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        """It keeps no list."""


class SlowStore(RemoteStorageManager):
    """Calls take time, and fail while `error` says for whom.

    Attributes:
        loses: whether what is copied of a partition is not kept, and the call says nothing of it.
        kept: ids of what is there.
        tried: calls by kind and partition.
        copying: partitions whose copies run now.
        call_ms: how long each call takes.
    """

    def __init__(self, pause: Callable[[int], None], call_ms: int) -> None:
        self._pause, self.call_ms = pause, call_ms
        self.error: Callable[[int], RemoteStorageError | None] = lambda number: None
        self.loses: Callable[[int], bool] = lambda number: False
        self.kept: set[bytes] = set()
        self._ends: dict[bytes, dict[IndexType | None, bytes]] = {}
        self.tried: Counter[tuple[str, int]] = Counter()
        self.copying: list[int] = []

    def configure(self, configs: Mapping[str, str]) -> None:
        """It has no settings."""

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        number = metadata.id.topic_id_partition.partition
        self.copying.append(number)
        try:
            self._call("copy", number)
        finally:
            self.copying.remove(number)
        if self.loses(number):
            return None
        self.kept.add(metadata.id.id)
        data.log.seek(metadata.segment_size_bytes - 1)
        parts = [data.offset_index, data.time_index, data.producer_snapshot]
        kinds = [IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT]
        ends: dict[IndexType | None, bytes] = {
            None: data.log.read(),
            IndexType.LEADER_EPOCH: bytes(data.leader_epoch_index),
        }
        for kind, part in zip(kinds, parts, strict=True):
            part.seek(0)
            ends[kind] = part.read()
        self._ends[metadata.id.id] = ends
        return None

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._call("delete", metadata.id.topic_id_partition.partition)
        self.kept.discard(metadata.id.id)

    def _call(self, kind: str, number: int) -> None:
        self.tried[kind, number] += 1
        self._pause(self.call_ms)
        error = self.error(number)
        if error is not None:
            raise error

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        return BytesIO(self._parts(metadata)[None])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        return BytesIO(self._parts(metadata)[index_type])

    def _parts(self, metadata: RemoteLogSegmentMetadata) -> dict[IndexType | None, bytes]:
        if metadata.id.id not in self._ends:
            raise RemoteResourceNotFoundError("404")
        return self._ends[metadata.id.id]

    def close(self) -> None:
        """It holds nothing."""


class BusyTier:
    """See the module."""

    def __init__(
        self,
        count: int,
        *,
        copiers: int,
        call_ms: int,
        seed: int = 1,
        backlog: int = 0,
        **settings: Any,
    ) -> None:
        ports = simulated(seed)
        self.clock, self.scheduler, self.rng = ports.clock, ports.scheduler, ports.rng
        sizes = {COPIER_POOL: copiers, EXPIRATION_POOL: copiers, VALIDATION_POOL: 1}
        self.workers = TurnWorkers(ports.scheduler, sizes)
        self.store = SlowStore(partial(self.workers.pause, None), call_ms)
        self.metadata = InMemoryRemoteLogMetadataManager(ports.clock, ports.rng)
        self.telemetry = Telemetry()
        self.many = ManyLogs(count)
        self.logs = self.many.logs
        self._closed_ms: list[dict[int, int]] = [{} for _ in range(count)]
        config = TierConfig(
            node_id=1,
            cluster_id="c",
            state_dir="",
            cache_dir="",
            storage_class="x:Y",
            task_interval_ms=INTERVAL_MS,
            **settings,
        )
        self.config = config
        self.manager = RemoteLogManager(
            config=config,
            world=World(
                broker=self.many,
                metadata=self.metadata,
                storage=self.store,
                clock=ports.clock,
                rng=ports.rng,
                calls=PluginCalls(ports.clock),
                telemetry=self.telemetry,
                deletions=Deletions(self.store, ports.clock, 600_000, config.copy_max_ms),
                copy_max_ms=config.copy_max_ms,
                call_max_ms=config.call_max_ms,
                pause=self.workers.pause,
            ),
            workers=self.workers,
            scheduler=ports.scheduler,
            next_incarnation=lambda above: above + 1,
        )
        for number in range(count):
            for _ in range(backlog):
                self.close_one(number)
            self.assign(number)

    def assign(self, number: int, *, is_leader: bool = True) -> None:
        self.manager.assign(
            Assign(
                PARTITION.topic_id,
                number,
                1,
                topic=PARTITION.topic,
                is_leader=is_leader,
                settings=PartitionSettings(),
            )
        )

    def close_one(self, number: int) -> None:
        """One more segment of the partition is closed."""
        log = self.logs[number]
        self._closed_ms[number][log.end] = self.clock.monotonic_ms()
        log.fill(1, records=1)

    def run(self, ms: int, segments_per_second: Mapping[int, float] | None = None) -> None:
        """Let time pass, while segments are closed."""
        rates = segments_per_second or {}
        until_ms = self.clock.monotonic_ms() + ms
        while self.clock.monotonic_ms() < until_ms:
            for number, rate in rates.items():
                if self.rng.random() < rate * STEP_MS / 1_000:
                    self.close_one(number)
            self.scheduler.advance(STEP_MS)

    def lag(self, number: int) -> int:
        """Closed segments that are not copied."""
        return len(self._waiting(number))

    def oldest_ms(self, number: int) -> int:
        """How long the oldest of them has waited."""
        waiting = self._waiting(number)
        return self.clock.monotonic_ms() - min(waiting.values()) if waiting else 0

    def _waiting(self, number: int) -> dict[int, int]:
        copied = self.logs[number].copied
        closed = self._closed_ms[number]
        for offset in [offset for offset in closed if offset <= copied]:
            del closed[offset]
        return closed

    def measured(self, name: str) -> dict[int, float]:
        """A gauge of the topic, by partition."""
        return {
            int(dict(sample.labels)["partition"]): sample.value
            for sample in self.telemetry.registry.samples()
            if sample.name == f"kafka_server_BrokerTopicMetrics_{name}"
        }

    def failed_copies(self) -> float:
        """As the metric counts them."""
        return sum(
            sample.value
            for sample in self.telemetry.registry.samples()
            if sample.name.startswith("kafka_server_BrokerTopicMetrics_RemoteCopyErrorsPerSec")
        )

    def dangling(self) -> Counter[int]:
        """Ids that no copy runs for and that are not deleted yet, by partition."""
        gone = {SegmentState.COPY_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_STARTED}
        return Counter(
            {
                number: sum(
                    segment.state in gone
                    for segment in self.metadata.list_segments(partition(number))
                )
                for number in range(len(self.logs))
            }
        )
