"""Metrics of groups, with the names of Kafka's beans as the JMX exporter writes them.

Counters stand for Kafka's rates, which monitoring can compute from them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.state import GroupCounts
from broker.coordinator.shard import Shard, ShardStage
from runtime.clock import Clock
from runtime.metrics import Registry

_METRICS: Final = "kafka_server_group_coordinator_metrics_"
_MANAGER: Final = "kafka_coordinator_group_GroupMetadataManager_"
_COUNTED_FOR_MS: Final = 500
_STAGES: Final = (ShardStage.LOADING, ShardStage.ACTIVE, ShardStage.FAILED)


class GroupMetrics:
    """Counters of groups, and gauges that are computed at each scrape.

    Attributes:
        offset_commits: Offsets committed by clients.
        offset_expirations: Tombstones of expired offsets.
        offset_deletions: Offsets deleted by clients, or with their topics.
        damaged_records: Damaged places, found when logs were opened or loaded.
        purgatory_ms: How long answers waited for the commit of their records.
    """

    def __init__(self, metrics: Registry, shards: Mapping[int, Shard], clock: Clock) -> None:
        self._shards, self._clock = shards, clock
        self._counted: list[GroupCounts] = []
        self._counted_ms = -_COUNTED_FOR_MS
        self.offset_commits = metrics.counter(
            f"{_METRICS}offset_commit_count", "Offsets that clients committed."
        )
        self.offset_expirations = metrics.counter(
            f"{_METRICS}offset_expiration_count", "Offsets that were too old and are gone."
        )
        self.offset_deletions = metrics.counter(
            f"{_METRICS}offset_deletion_count", "Offsets deleted by clients or with their topics."
        )
        self.damaged_records = metrics.counter(
            "tidemark_group_damaged_records_total",
            "Records and batches of __consumer_offsets that could not be read, and are excluded.",
        )
        self.purgatory_ms = metrics.histogram(
            f"{_METRICS}event_purgatory_time_ms",
            "How long decisions waited for the commit of their records, where it was not at once.",
        )
        self._rebalances_elsewhere = 0
        self._loads = self._loads_ms = self._longest_ms = 0
        metrics.gauge(
            f"{_METRICS}partition_load_time_max",
            "Milliseconds of the longest load of a partition of __consumer_offsets.",
            fn=lambda: self._longest_ms,
        )
        metrics.gauge(
            f"{_METRICS}partition_load_time_avg",
            "Milliseconds that a load took on average.",
            fn=lambda: self._loads_ms / self._loads if self._loads else 0,
        )
        metrics.gauge(
            f"{_METRICS}num_partitions",
            "Partitions of __consumer_offsets led here, by what they are at.",
            ("state",),
            self._partitions,
        )
        metrics.gauge(
            f"{_METRICS}parked_requests",
            "Requests that wait for other members, or for their commit.",
            fn=lambda: sum(shard.parked_count for shard in shards.values()),
        )
        self._register_groups(metrics)

    def _register_groups(self, metrics: Registry) -> None:
        gauges: dict[str, tuple[str, Callable[[GroupCounts], float]]] = {
            "NumOffsets": ("Offsets committed.", lambda counts: counts.offsets),
            "NumGroups": ("Groups, in any state.", lambda counts: sum(counts.groups.values())),
        }
        for status in GroupStatus:
            gauges[f"NumGroups{status.value}"] = (
                f"Groups in the state {status.value}.",
                lambda counts, status=status: counts.groups[status],  # type: ignore[misc]
            )
        for name, (text, fact) in gauges.items():
            metrics.gauge(
                f"{_MANAGER}{name}",
                text,
                fn=lambda fact=fact: sum(map(fact, self._counts())),  # type: ignore[misc]
            )
        metrics.gauge(
            f"{_METRICS}group_completed_rebalance_count",
            "Generations that became stable, since the start of the broker.",
            fn=lambda: (
                self._rebalances_elsewhere
                + sum(shard.state.totals.completed_rebalances for shard in self._shards.values())
            ),
        )
        metrics.gauge(
            f"{_METRICS}group_count",
            "Groups by the protocol that they use; only classic ones are served.",
            ("protocol",),
            self._by_protocol,
        )
        metrics.gauge(
            "tidemark_group_members",
            "Members of all groups.",
            fn=lambda: sum(one.members for one in self._counts()),
        )
        metrics.gauge(
            "tidemark_group_foreign_groups",
            "Groups of protocols that are not served, found in __consumer_offsets.",
            fn=lambda: sum(one.foreign_groups for one in self._counts()),
        )
        metrics.gauge(
            "tidemark_group_unknown_records",
            "Records found in __consumer_offsets of types unknown to this version, by type.",
            ("type",),
            self._unknown_records,
        )

    def resigned(self, shard: Shard) -> None:
        """Keep the counts of a partition that is no longer led here."""
        self._rebalances_elsewhere += shard.state.totals.completed_rebalances

    def loaded(self, took_ms: int) -> None:
        """Record the duration of a load."""
        self._loads += 1
        self._loads_ms += took_ms
        self._longest_ms = max(self._longest_ms, took_ms)

    def _by_protocol(self) -> dict[tuple[str, ...], float]:
        counts = self._counts()
        return {
            ("classic",): sum(sum(one.groups.values()) for one in counts),
            ("other",): sum(one.foreign_groups for one in counts),
        }

    def _partitions(self) -> dict[tuple[str, ...], float]:
        counted = Counter(shard.stage for shard in self._shards.values())
        return {(stage.value,): counted[stage] for stage in _STAGES}

    def _unknown_records(self) -> dict[tuple[str, ...], float]:
        counted: Counter[int] = Counter()
        for one in self._counts():
            counted.update(one.unknown_records)
        return {(str(kind),): count for kind, count in counted.items()}

    def _counts(self) -> list[GroupCounts]:
        """Counts of the active shards; cached, because one scrape reads them several times."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._counted_ms >= _COUNTED_FOR_MS:
            active = [one for one in self._shards.values() if one.stage is ShardStage.ACTIVE]
            self._counted = [shard.state.counts for shard in active]
            self._counted_ms = now_ms
        return self._counted
