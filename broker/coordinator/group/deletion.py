"""DeleteGroups, and the deletion of offsets of deleted topics. Pure."""

from collections.abc import Iterator, Mapping
from itertools import chain, islice

from broker.coordinator.group import refusals
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import GroupRecord, Ticket
from broker.coordinator.group.decision_builder import DecisionBuilder
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import group_key, offset_key
from broker.coordinator.group.replaying import Replay
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID

OFFSETS_AT_ONCE = 1_000
"""Offsets of a group that are deleted in one decision."""
_SLICE = 500
"""Offsets or groups visited in one slice: some milliseconds."""


def delete_group(builder: DecisionBuilder, replay: Replay, ticket: Ticket, group_id: str) -> None:
    """Delete an empty group with all of its offsets.

    The records may take several batches: a crash in between leaves some offsets, and the group.
    """
    group = replay.groups.get(group_id)
    error = _refusal(replay, group_id)
    if not error:
        builder.records.extend(_all_offsets(replay.offsets, group_id))
        builder.records.extend(replay.foreign.tombstones(group_id))
        if group is not None:
            builder.records.append(GroupRecord(group_key(group_id), None))
            _forget_pending(builder, group)
    builder.answer(ticket, refusals.delete_group(group_id, error))


def thin_out_group(builder: DecisionBuilder, replay: Replay, ticket: Ticket, group_id: str) -> None:
    """Delete up to `OFFSETS_AT_ONCE` offsets of an empty group."""
    error = _refusal(replay, group_id)
    if not error:
        committed = replay.offsets.of_group(group_id).items()
        places = ((topic, partition) for topic, those in committed for partition in those)
        for place in islice(places, OFFSETS_AT_ONCE):
            builder.records.append(GroupRecord(offset_key(group_id, *place), None))
    builder.answer(ticket, refusals.delete_group(group_id, error))


def _refusal(replay: Replay, group_id: str) -> ErrorCode:
    """The error if a group cannot be deleted, else NONE."""
    group = replay.groups.get(group_id)
    if group is None and replay.foreign.type_of(group_id) is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group is not None and group.status is not GroupStatus.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _forget_pending(builder: DecisionBuilder, group: ClassicGroup) -> None:
    """Cancel the session timers of pending ids."""
    for member_id in list(group.pending):
        builder.cancel_session(group, member_id)


def _all_offsets(offsets: OffsetStore, group_id: str) -> list[GroupRecord]:
    """A tombstone for each partition, committed or in an open transaction."""
    committed = {
        (topic, partition)
        for topic, partitions in offsets.of_group(group_id).items()
        for partition in partitions
    }
    places = committed.union(offsets.pending_partitions(group_id))
    return [GroupRecord(offset_key(group_id, *place), None) for place in sorted(places)]


def topics_deleted(
    offsets: OffsetStore, topics: Mapping[str, bytes]
) -> Iterator[list[GroupRecord]]:
    """Yield tombstones for the offsets of deleted topics, in slices of bounded work.

    An offset with a topic id is deleted only if that topic is deleted. A later topic of the same
    name may have committed offsets too.
    """
    records: list[GroupRecord] = []
    looked_at = 0
    for group_id in {**dict.fromkeys(offsets.groups), **dict.fromkeys(offsets.pending_groups())}:
        for topic, partition in chain((("", 0),), _places(offsets, group_id, topics)):
            looked_at += 1
            if looked_at >= _SLICE:
                yield records
                records, looked_at = [], 0
            if topic and _goes_with(offsets, (group_id, topic, partition), topics[topic]):
                records.append(GroupRecord(offset_key(group_id, topic, partition), None))
    if records:
        yield records


def _places(
    offsets: OffsetStore, group_id: str, topics: Mapping[str, bytes]
) -> Iterator[tuple[str, int]]:
    """Partitions of these topics with offsets of the group, including open transactions."""
    few, many = sorted((offsets.of_group(group_id), topics), key=len)
    for topic in [topic for topic in few if topic in many]:
        for partition in list(offsets.of_group(group_id).get(topic, ())):
            yield topic, partition
    for topic, partition in offsets.pending_partitions(group_id):
        if topic in topics and partition not in offsets.of_group(group_id).get(topic, ()):
            yield topic, partition


def _goes_with(offsets: OffsetStore, place: tuple[str, str, int], topic_id: bytes) -> bool:
    group_id, topic, partition = place
    if offsets.is_pending(group_id, topic, partition):
        return True  # an offset in a transaction has no topic id
    found = offsets.get(group_id, topic, partition)
    return found is not None and found.topic_id in {ZERO_UUID, topic_id}
