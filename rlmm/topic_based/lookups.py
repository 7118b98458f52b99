"""Look-ups in the engine's state, from any thread; they wait only for the engine's lock."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from kafka_protocol.types import TopicIdPartition
from rlmm.api import MetadataNotReadyError, PartitionDeletion, PartitionHistory
from rlmm.lifecycle import PartitionFacts, SegmentEntry, deletion_of, history_of
from rlmm.partition_view import PartitionView
from rlmm.store import MetadataStore, PartitionKey, partition_key
from rlmm.topic_based.end_reads import LATE_MS
from rlmm.topic_based.roles import Role, Tracked
from rlmm.topic_based.topic_port import metadata_partition_for, without_end
from rlmm.topic_based.view_cache import ViewCache
from rsm_plugins.segment import RemoteLogSegmentId
from runtime.health_reasons import HealthText


def home_of(key: PartitionKey, partition_count: int) -> int:
    """The metadata partition of a user partition."""
    return metadata_partition_for(TopicIdPartition(key[0], key[1], ""), partition_count)


class Lookups:
    """Reads the engine's state, under its lock.

    `is_ready` and `unreadable`, which are called each second, read without the lock values that the
    engine replaces whole.
    """

    def __init__(
        self,
        lock: AbstractContextManager[object],
        store: MetadataStore,
        views: ViewCache,
        roles: Mapping[PartitionKey, Role],
        tracked: dict[int, Tracked],
        partition_count: int,
    ) -> None:
        self._lock = lock
        self._store = store
        self._views = views
        self._roles = roles
        self._tracked = tracked
        self._partition_count = partition_count

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """True if a role is ready; takes no lock, since it is called for every partition.

        During a turn of the engine the answer may be that before the turn. Look-ups that follow
        take the lock, and read the state after that turn.
        """
        role = self._roles.get(partition_key(partition))
        return role is not None and role.is_ready

    @contextmanager
    def view(self, partition: TopicIdPartition) -> Iterator[PartitionView]:
        """The view of a partition, under the lock.

        Raises:
            MetadataNotReadyError: Its cached state may be too old to answer.
        """
        key = partition_key(partition)
        with self._lock:
            yield self._views.get(self._readable_home(key), key)

    def entry(self, id: RemoteLogSegmentId) -> SegmentEntry | None:
        """The entry of a live segment; raises as `view` does."""
        key = partition_key(id.topic_id_partition)
        with self._lock:
            return self._store.entry(self._readable_home(key), key, id.id)

    def history(self, partition: TopicIdPartition) -> PartitionHistory:
        """Facts beyond the states of the segments; None: this manager keeps no history."""
        key = partition_key(partition)
        with self._lock:
            role, home = self._roles.get(key), self._readable_home(key)
            if role is None or not role.is_ready:
                raise MetadataNotReadyError(f"neither owned nor followed: {partition}")
            facts = self._store.facts(home, key) or PartitionFacts(partition)
            return history_of(facts, self._views.get(home, key).entries())

    def led_partitions(self) -> list[PartitionDeletion]:
        """User partitions whose deletion this broker may decide, without completed deletions."""
        with self._lock:
            return [
                deletion
                for number, tracked in self._tracked.items()
                if tracked.may_validate
                for deletion in self._views.deletions.of(number)
            ]

    def finished_partitions(self, topic_ids: frozenset[bytes]) -> list[PartitionDeletion]:
        """The partitions of these topics whose deletion is complete: mostly none."""
        found = list[PartitionDeletion]()
        with self._lock:
            numbers = list(self._tracked)
        for number in numbers:
            with self._lock:
                tracked = self._tracked.get(number)
                if tracked is not None and tracked.may_validate:
                    found += self._views.deletions.finished_of(number, topic_ids)
        return found

    def unreadable(self, now_ms: int) -> tuple[HealthText, ...]:
        """One health reason for each metadata partition that cannot be read, or not to an end."""
        reasons = list[tuple[int, HealthText]]()
        for number, tracked in self._tracked.copy().items():
            since_ms = tracked.end_reads.waits_since_ms
            reason = tracked.unreadable
            if not reason and since_ms is not None and now_ms - since_ms >= LATE_MS:
                reason = without_end(number, (now_ms - since_ms) // 1_000)
            reasons.append((number, reason))
        return tuple(reason for _, reason in sorted(reasons) if reason)

    def leads_all(self) -> bool:
        """True if `led_partitions` covers the whole metadata topic."""
        with self._lock:
            validated = sum(tracked.may_validate for tracked in self._tracked.values())
            return validated == self._partition_count

    def deletion(self, partition: TopicIdPartition) -> PartitionDeletion | None:
        """The deletion state of one user partition; None if no record names it."""
        key = partition_key(partition)
        with self._lock:
            facts = self._store.facts(self._readable_home(key), key)
        return None if facts is None else deletion_of(facts)

    def _readable_home(self, key: PartitionKey) -> int:
        home = home_of(key, self._partition_count)
        tracked = self._tracked.get(home)
        if tracked is None or not tracked.caught_up:
            raise MetadataNotReadyError(f"metadata partition {home} is not caught up")
        return home
