"""The coordinator of groups: finds a group's shard, and begins and ends shards.

The hash of a group id selects a partition of `__consumer_offsets`, as in Kafka, and the leader of
that partition coordinates the group. A shard begins with leadership: its log is read on a thread,
and until that is done its groups get COORDINATOR_LOAD_IN_PROGRESS (14). It ends with leadership. If
this broker is elected again without a gap, the shard stays loaded.
"""

import asyncio
import logging
from collections.abc import Container, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct, iter_unpack
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.decision import Decision, GroupRecord, MemoryBudget, TimerKey
from broker.coordinator.group.records import GROUP_KEY_TYPE, key_group, key_type
from broker.coordinator.group.state import GroupLimits, GroupState
from broker.coordinator.loader import Loader
from broker.coordinator.metrics import GroupMetrics
from broker.coordinator.shard import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    Shard,
    ShardParts,
    ShardStage,
    batches_of,
)
from broker.replica.hosting import ReplicaEvents
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.topics.auto_creation import AutoTopicCreation
from broker.topics.offsets_topic import OFFSETS_TOPIC, OffsetsTopic, offsets_topic_spec
from local_log.errors import MessageTooLarge, RecordListTooLarge
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.node import MetadataNode
from runtime.health_reasons import HealthLine, HealthReason
from runtime.incidents import Incident
from runtime.log_context import LimitedLog
from runtime.ports import Ports
from runtime.timing_wheel import TimingWheel

log = logging.getLogger(__name__)

_CODE_UNIT = Struct("<H")
_BITS_31 = 0x7FFFFFFF
_SIGN = 0x80000000

_MINUTE_MS: Final = 60_000
_TOO_LARGE: Final = (MessageTooLarge, RecordListTooLarge)


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, from -2**31 to 2**31 - 1, over UTF-16 code units."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = value * 31 + unit & 0xFFFFFFFF
    else:
        for (unit,) in iter_unpack(_CODE_UNIT.format, text.encode("utf-16-le", "surrogatepass")):
            value = value * 31 + unit & 0xFFFFFFFF
    return value - (1 << 32) if value & _SIGN else value


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition for `group_id`, as computed by Kafka's brokers and tools."""
    value = java_hash(group_id)
    # -2**31 has no positive counterpart in Java: Kafka uses 0 for it.
    return (abs(value) & _BITS_31) % partition_count


class GroupCoordinator:
    """All groups that this broker coordinates.

    Attributes:
        topic: The topic of their records.
        metrics: Counters and gauges.
        shards: By partition of the topic.
    """

    def __init__(self, topic: OffsetsTopic, config: BrokerConfig, ports: Ports) -> None:
        """Coordinate nothing yet; `on_replicas` must be called with the partitions led here."""
        self.topic = topic
        self.shards: dict[int, Shard] = {}
        self.metrics = GroupMetrics(ports.metrics, self.shards, ports.clock)
        self._ports = ports
        self._limits = limits_of(config)
        self._wheel: TimingWheel[tuple[Shard, TimerKey]] = TimingWheel(
            ports.clock, ports.scheduler, lambda key: key[0].fire(key[1])
        )
        self._parts = ShardParts(
            ports.clock,
            ports.scheduler,
            self._wheel,
            config.offsets_topic_compression_codec,
            config.offsets_commit_timeout_ms,
            self.metrics.purgatory_ms.observe,
        )
        self._loader = Loader(ports, config.offsets_load_buffer_size, self.metrics)
        self._maintenance: set[asyncio.Task[None]] = set()
        self._expiry = ports.scheduler.every(
            config.offsets_retention_check_interval_ms, self.expire, "group-offset-expiry"
        )
        self._budget = MemoryBudget(
            lambda: self.kept_bytes, config.tidemark_group_bytes_max, on_refused=self._refused
        )
        self._refusals = LimitedLog(ports.clock)
        self._is_stopped = False
        ports.metrics.gauge(
            "tidemark_group_bytes",
            "About what groups and their offsets take in memory.",
            fn=lambda: self.kept_bytes,
        )

    # -- which shard

    def partition_of(self, group_id: str) -> int:
        """The partition for a group; defined before the topic exists."""
        return partition_of(group_id, self.topic.partition_count)

    def shard(self, group_id: str) -> Shard:
        """The shard of a group.

        Raises:
            NotCoordinator: Another broker has it, or none.
            CoordinatorLoadInProgress: It is being loaded.
            CoordinatorNotAvailable: This broker stops.
        """
        if self._is_stopped:
            raise CoordinatorNotAvailable("the broker stops")
        number = self.partition_of(group_id)
        shard = self.shards.get(number)
        if shard is None or shard.stage in (ShardStage.CLOSED, ShardStage.FAILED):
            raise NotCoordinator(f"{OFFSETS_TOPIC}-{number} is not led here")
        if shard.stage is ShardStage.LOADING:
            raise CoordinatorLoadInProgress(f"{OFFSETS_TOPIC}-{number} is being loaded")
        return shard

    def all_shards(self) -> list[Shard]:
        """The active shards, for requests about all groups.

        Raises:
            CoordinatorLoadInProgress: One is being loaded, so its groups are unknown.
            CoordinatorNotAvailable: This broker stops.
        """
        if self._is_stopped:
            raise CoordinatorNotAvailable("the broker stops")
        for number, shard in self.shards.items():
            if shard.stage is ShardStage.LOADING:
                raise CoordinatorLoadInProgress(f"{OFFSETS_TOPIC}-{number} is being loaded")
        return [shard for shard in self.shards.values() if shard.stage is ShardStage.ACTIVE]

    def problems(self) -> list[HealthLine]:
        """Health lines (unhealthy): partitions whose groups cannot be served."""
        return [
            HealthReason.GROUPS_NOT_SERVED.line(partition=f"{OFFSETS_TOPIC}-{number}")
            for number, shard in self.shards.items()
            if shard.stage is ShardStage.FAILED
        ]

    def damages(self) -> list[HealthLine]:
        """Health lines (yellow): groups that are served without their damaged records."""
        return [
            HealthReason.GROUPS_DAMAGED.line(
                partition=f"{OFFSETS_TOPIC}-{number}", count=shard.damaged
            )
            for number, shard in self.shards.items()
            if shard.damaged
        ]

    # -- memory

    @property
    def kept_bytes(self) -> int:
        """Approximate memory of all groups and their offsets; O(shards)."""
        return sum(shard.state.kept_bytes for shard in self.shards.values())

    def _refused(self, is_new: bool) -> None:
        """Log a refusal for lack of memory, at most once a minute."""
        what = "new groups" if is_new else "members, assignments and offsets of groups"
        line = Incident.GROUP_MEMORY.line(what=what, used=self.kept_bytes, most=self._budget.most)
        self._refusals.error(log, line, what)

    # -- leadership

    def on_replicas(self, events: ReplicaEvents) -> None:
        """Listener of the replica manager: begin and end shards."""
        for partition in events.led:
            if partition.topic == OFFSETS_TOPIC:
                self._elected(partition)
        for partition in (*events.followed, *events.gone):
            if partition.topic == OFFSETS_TOPIC:
                self._resigned(partition.partition)

    def _elected(self, partition: Partition) -> None:
        known = self.shards.get(partition.partition)
        works = known is not None and known.stage in (ShardStage.LOADING, ShardStage.ACTIVE)
        if works and known is not None and known.partition is partition:
            return  # a new epoch of the same leadership: no other broker has written
        if self._is_stopped:
            return
        self._resigned(partition.partition)
        shard = Shard(partition, GroupState(self._limits, self._budget), self._parts)
        self.shards[partition.partition] = shard
        self._loader.load(shard)

    def _resigned(self, number: int) -> None:
        shard = self.shards.pop(number, None)
        if shard is None:
            return
        self.metrics.resigned(shard)
        was_active = shard.stage is ShardStage.ACTIVE
        shard.close()
        if was_active and not self._is_stopped:
            self._begin(self._let_go(shard.state))

    async def _let_go(self, state: GroupState) -> None:
        """Free the memory of a closed state in slices."""
        for _ in state.let_go():
            await asyncio.sleep(0)

    # -- maintenance

    def on_metadata(self, _image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Subscriber of the metadata: delete offsets of deleted topics."""
        if delta is not None and delta.deleted_topics:
            deleted = {topic.name: topic.id for topic in delta.deleted_topics.values()}
            self._begin(self._forget_topics(deleted))

    def expire(self) -> "asyncio.Task[None]":
        """Delete expired offsets now; the task ends when their tombstones are written."""
        return self._begin(self._expire())

    def _begin(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(work)
        self._maintenance.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._maintenance.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            line = Incident.DEFECT.line(what="maintenance of groups failed")
            log.error(line, exc_info=error)

    async def _expire(self) -> None:
        for shard in list(self.shards.values()):
            if shard.stage is ShardStage.ACTIVE:
                count = await self._carry_out(shard, shard.state.expire_offsets(shard.now))
                self.metrics.offset_expirations.inc(count)

    async def _forget_topics(self, deleted: Mapping[str, bytes]) -> None:
        for shard in list(self.shards.values()):
            if shard.stage is ShardStage.ACTIVE:
                found = shard.state.topics_deleted(deleted, shard.now)
                count = await self._carry_out(shard, found)
                self.metrics.offset_deletions.inc(count)

    async def _carry_out(self, shard: Shard, decisions: Iterator[Decision]) -> int:
        """Carry out decisions, one in each iteration of the loop; returns the written records."""
        count, failures = 0, []
        for decision in decisions:
            error, written = shard.carry_out(decision), len(decision.records)
            if isinstance(error, _TOO_LARGE):
                error, written = written_apart(shard, decision.records)
            count += written if error is None or isinstance(error, _TOO_LARGE) else 0
            if error is not None:
                failures.append(error)
                if not isinstance(error, _TOO_LARGE):
                    break
            await asyncio.sleep(0)
            if shard.stage is not ShardStage.ACTIVE:
                break
        if failures:
            log.error(
                Incident.OFFSETS_KEPT.line(
                    partition=shard.partition.topic_partition,
                    count=len(failures),
                    error=str(failures[0]),
                    remedy=_remedy(failures[0]),
                )
            )
        return count

    # -- end

    async def stop(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR (16), and refuse new ones."""
        self._is_stopped = True
        self._expiry.cancel()
        for number in list(self.shards):
            self._resigned(number)
        self._wheel.stop()
        for task in self._maintenance:
            task.cancel()
        await self._loader.stop()


def written_apart(shard: Shard, records: Sequence[GroupRecord]) -> tuple[Exception | None, int]:
    """Write tombstones of which one is too large for a batch: all but that one.

    A group whose offset cannot be removed stays, too. All batches are written in one iteration of
    the loop, because they were decided from the current state.

    Returns:
        The first failure, and the number of written records.
    """
    config, count = shard.partition.log.config, 0
    staying: set[str] = set()
    failure: Exception | None = None
    for run in batches_of(records, min(config.max_message_bytes, config.segment_bytes) // 2):
        wanted = [one for one in run if not _removes_group_of(one, staying)]
        error = shard.carry_out(Decision(records=tuple(wanted))) if wanted else None
        if error is None:
            count += len(wanted)
            continue
        failure = failure or error
        if not isinstance(error, _TOO_LARGE):
            break
        staying.update(key_group(one.key)[0] for one in wanted)
    return failure, count


def _removes_group_of(record: GroupRecord, groups: Container[str]) -> bool:
    return key_type(record.key) == GROUP_KEY_TYPE and key_group(record.key)[0] in groups


def _remedy(error: Exception) -> str:
    """The remedy for a batch that was too large, or for another error of an append."""
    if isinstance(error, _TOO_LARGE):
        return f"raise max.message.bytes and segment.bytes of {OFFSETS_TOPIC}"
    return "repair what the error names"


def begin_groups(
    creation: AutoTopicCreation,
    node: MetadataNode,
    replicas: ReplicaManager,
    config: BrokerConfig,
    ports: Ports,
) -> GroupCoordinator:
    """Make a broker's coordinator, and subscribe it to leadership and metadata."""
    topic = OffsetsTopic(lambda: node.image, creation, config)
    creation.internal[OFFSETS_TOPIC] = partial(offsets_topic_spec, config)
    coordinator = GroupCoordinator(topic, config, ports)
    replicas.listeners.append(coordinator.on_replicas)
    node.subscribe(coordinator.on_metadata)
    return coordinator


def limits_of(config: BrokerConfig) -> GroupLimits:
    """The settings of `config` that apply to groups."""
    return GroupLimits(
        session_timeout_min_ms=config.group_min_session_timeout_ms,
        session_timeout_max_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_size_max=config.group_max_size,
        offset_metadata_bytes_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
    )
