"""Expiry of committed offsets and of empty groups (KIP-211). Pure.

| the group | its offsets expire |
|---|---|
| is empty | `offsets.retention.minutes` after it became empty |
| is empty, written by an old broker | that long after their commit |
| is stable, of consumers | that long after their commit, if the topic is not subscribed to |
| has no protocol type (a simple group) | that long after their commit |
| is in any other state | not |

An offset with an expire timestamp (OffsetCommit up to v4) expires then. Offsets in an open
transaction stay. An empty group is deleted with its last offset, in one batch.
"""

from collections.abc import Iterator, Mapping

from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import GroupRecord
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.offsets import OffsetStore, value_of
from broker.coordinator.group.protocols import CONSUMER_PROTOCOL
from broker.coordinator.group.records import (
    commit_timestamp_ms,
    group_key,
    offset_key,
    read_offset_value,
)

SLICE = 500
"""Offsets visited in one slice: some milliseconds."""


def is_over(group: ClassicGroup, value: bytes, now_ms: int, keep_ms: int) -> bool:
    """True if an offset has expired; subscriptions to its topic are not considered.

    Args:
        group: The group of the offset.
        value: Value of its record.
        now_ms: Wall clock.
        keep_ms: `offsets.retention.minutes`, in ms.
    """
    is_empty = group.status is GroupStatus.EMPTY
    is_simple = group.protocol_type is None
    if not is_simple and not is_empty and not _knows_its_topics(group):
        return False
    base_ms = commit_timestamp_ms(value)
    if base_ms is None:
        return now_ms >= read_offset_value(value).expire_timestamp_ms
    if is_empty and not is_simple and group.since_ms is not None:
        base_ms = group.since_ms
    return now_ms - base_ms >= keep_ms


def _knows_its_topics(group: ClassicGroup) -> bool:
    is_stable = group.status is GroupStatus.STABLE
    is_consumers = group.protocol_type == CONSUMER_PROTOCOL
    return is_stable and is_consumers and group.subscribed is not None


def expired(
    groups: Mapping[str, ClassicGroup], offsets: OffsetStore, now_ms: int, keep_ms: int
) -> Iterator[list[GroupRecord]]:
    """Tombstones of expired offsets and groups, in slices of bounded work (also empty ones).

    The records of a slice must be replayed before the next slice is requested. Groups may change in
    between: each offset is checked at its own slice.
    """
    records: list[GroupRecord] = []
    looked_at = 0
    for group_id in list(groups):
        gone = 0
        if looked_at >= SLICE:
            yield records
            records, looked_at = [], 0
        for topic, partition in _places(offsets, group_id):
            looked_at += 1
            if looked_at >= SLICE:
                yield records
                records, looked_at, gone = [], 0, 0
            group = groups.get(group_id)
            stored = offsets.of_group(group_id).get(topic, {}).get(partition)
            if group is None or stored is None:
                continue
            if _may_end(group, offsets, (topic, partition), stored, now_ms, keep_ms):
                records.append(GroupRecord(offset_key(group_id, topic, partition), None))
                gone += 1
        group = groups.get(group_id)
        if group is not None and _may_go(group, offsets) and offsets.count_of(group_id) == gone:
            records.append(GroupRecord(group_key(group_id), None))
        looked_at += 1
    yield records


def _places(offsets: OffsetStore, group_id: str) -> Iterator[tuple[str, int]]:
    """Partitions with offsets; those that are added meanwhile may be missing."""
    for topic in list(offsets.of_group(group_id)):
        for partition in list(offsets.of_group(group_id).get(topic, {})):
            yield topic, partition


def _may_end(
    group: ClassicGroup,
    offsets: OffsetStore,
    place: tuple[str, int],
    stored: bytes,
    now_ms: int,
    keep_ms: int,
) -> bool:
    topic, partition = place
    if group.is_subscribed(topic) or offsets.is_pending(group.group_id, topic, partition):
        return False
    return is_over(group, value_of(stored), now_ms, keep_ms)


def _may_go(group: ClassicGroup, offsets: OffsetStore) -> bool:
    """True if the group itself may be deleted: it has no members and no pending ids."""
    # DIFFERS: Kafka deletes a group even if its first member has a pending id.
    is_empty = group.status is GroupStatus.EMPTY and not group.pending
    return is_empty and not offsets.has_open_transaction(group.group_id)
