"""OffsetCommit, TxnOffsetCommit, OffsetDelete and OffsetFetch: requests to answers. Pure.

Any offset and any partition number can be committed, as in Kafka. Only the sender is checked: it
must be a member in the current generation, or no member while the group is empty.

KIPs: 211 (no retention time in commits from v5 on), 320 (leader epochs), 345 (instance ids), 447
(require_stable, commits of members in transactions), 496 (OffsetDelete), 848 (topic ids).
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from broker.coordinator.group import refusals
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import GroupRecord, Ticket
from broker.coordinator.group.decision_builder import DecisionBuilder
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.offsets import OffsetStore, growth_of, unpack
from broker.coordinator.group.protocols import CONSUMER_PROTOCOL
from broker.coordinator.group.records import (
    NO_EXPIRY,
    CommittedOffset,
    commit_records,
    offset_key,
)
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from runtime.work import Pace, Steps, at_once

NO_OFFSET = -1
_PARTITION_WORK = 5
_DEFAULT_RETENTION = -1
_INT64_MAX = 2**63 - 1
_GROUP_ID_NOT_FOUND_FROM = 9


def commit_refusal(
    group: ClassicGroup | None, request: Any, version: int, *, in_transaction: bool = False
) -> ErrorCode | None:
    """The error if this commit is refused, else None."""
    if in_transaction:
        generation = request.generation_id
    else:
        generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return None  # a simple group begins with its first commit
        is_known = in_transaction or version < _GROUP_ID_NOT_FOUND_FROM
        return ErrorCode.ILLEGAL_GENERATION if is_known else ErrorCode.GROUP_ID_NOT_FOUND
    is_empty = group.status is GroupStatus.EMPTY
    if generation < 0 and is_empty:
        return None
    if generation >= 0 or request.member_id or request.group_instance_id is not None:
        error = group.refusal_of(request.member_id, request.group_instance_id)
        if error is not None:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
    elif not in_transaction and not is_empty:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not in_transaction and group.status is GroupStatus.COMPLETING_REBALANCE:
        # The member has the generation but not its assignment yet: its offsets may belong to
        # another member by now.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def commit(
    builder: DecisionBuilder,
    group: ClassicGroup | None,
    offsets: OffsetStore,
    ticket: Ticket,
    request: Any,
) -> None:
    """Make the records of an allowed commit; it extends the member's session."""
    if group is not None:
        member = group.members.get(request.member_id)
        alive_in = {GroupStatus.STABLE, GroupStatus.PREPARING_REBALANCE}
        if member is not None and group.status in alive_in:
            builder.keep_alive(group, member)
    expire_ms = NO_EXPIRY
    if request.retention_time_ms != _DEFAULT_RETENTION:
        expire_ms = min(builder.now.wall_ms + request.retention_time_ms, _INT64_MAX)
    cls = response(ApiKey.OFFSET_COMMIT).cls
    topics = []
    for topic in request.topics:
        slots = _commit_topic(builder, request.group_id, offsets, topic, cls, expire_ms)
        topics.append(cls.Topics(name=topic.name, topic_id=topic.topic_id, partitions=slots))
    builder.answer(ticket, cls(topics=topics))


def commit_in_transaction(
    builder: DecisionBuilder, offsets: OffsetStore, ticket: Ticket, request: Any
) -> None:
    """Make the records of a transactional commit, for a batch of the transaction."""
    cls = response(ApiKey.TXN_OFFSET_COMMIT).cls
    topics = [
        cls.Topics(
            name=topic.name,
            partitions=_commit_topic(builder, request.group_id, offsets, topic, cls, NO_EXPIRY),
        )
        for topic in request.topics
    ]
    builder.answer(ticket, cls(topics=topics))


def _commit_topic(
    builder: DecisionBuilder,
    group_id: str,
    offsets: OffsetStore,
    topic: Any,
    cls: Any,
    expire_ms: int,
) -> list[Any]:
    topic_id = getattr(topic, "topic_id", ZERO_UUID)  # TxnOffsetCommit has no topic ids
    same = CommittedOffset(0, -1, "", builder.now.wall_ms, expire_ms, topic_id)
    record = commit_records(group_id, topic.name, same)
    slot = cls.Topics.Partitions
    limit = builder.limits.offset_metadata_bytes_max
    kept = offsets.of_group(group_id).get(topic.name, {})
    slots, records = [], builder.records
    before = len(records)
    for each in topic.partitions:
        number, metadata = each.partition_index, each.committed_metadata or ""
        if metadata and _utf16_units(metadata, limit) > limit:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            slots.append(slot(partition_index=number, error_code=error))
            continue
        made = record(number, each.committed_offset, each.committed_leader_epoch, metadata)
        assert made.value is not None
        more = growth_of(kept.get(number), made.value)
        if more and not builder.takes(more):
            # DIFFERS: Kafka has no such bound. Clients do not retry after this error.
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            slots.append(slot(partition_index=number, error_code=error))
            continue
        slots.append(slot(partition_index=number))
        records.append(made)
    builder.totals.commits += len(records) - before
    return slots


def _utf16_units(text: str, limit: int) -> int:
    """Java's length of a text; exact only if it may exceed `limit`."""
    if len(text) * 2 <= limit or text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def delete(
    builder: DecisionBuilder,
    group: ClassicGroup | None,
    offsets: OffsetStore,
    ticket: Ticket,
    request: Any,
) -> None:
    """Decide on an OffsetDelete; offsets of subscribed topics are kept."""
    error = _delete_refusal(group)
    if error is not None:
        builder.answer(ticket, refusals.delete_offsets(error))
        return
    assert group is not None
    cls = response(ApiKey.OFFSET_DELETE).cls
    topics = []
    for topic in request.topics:
        is_read = group.is_subscribed(topic.name)
        said = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
        slots = []
        for each in topic.partitions:
            partition = each.partition_index
            slots.append(cls.Topics.Partitions(partition_index=partition, error_code=said))
            if not is_read and is_known(offsets, group.group_id, topic.name, partition):
                builder.write(GroupRecord(offset_key(group.group_id, topic.name, partition), None))
                builder.totals.deletions += 1
        topics.append(cls.Topics(name=topic.name, partitions=slots))
    builder.answer(ticket, cls(topics=topics))


def is_known(offsets: OffsetStore, group_id: str, topic: str, partition: int) -> bool:
    """True if there is an offset to delete: committed, or in an open transaction."""
    committed = offsets.of_group(group_id).get(topic, {})
    return partition in committed or offsets.is_pending(group_id, topic, partition)


def _delete_refusal(group: ClassicGroup | None) -> ErrorCode | None:
    if group is None or group.status is GroupStatus.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.status is not GroupStatus.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
        return ErrorCode.NON_EMPTY_GROUP  # the topics of its members are unknown
    return None


def fetch(offsets: OffsetStore, request: Any, *, require_stable: bool) -> Any:
    """A group's slot of an OffsetFetch response; a missing offset is -1, not an error."""
    return at_once(fetch_in_steps(offsets, request, require_stable=require_stable))


def fetch_in_steps(offsets: OffsetStore, request: Any, *, require_stable: bool) -> Steps[Any]:
    """Like `fetch`, in slices; the answer has the offsets of the time of the call."""
    committed = offsets.of_group(request.group_id)
    pending = set(offsets.pending_partitions(request.group_id)) if require_stable else set()
    asked: list[_Asked] = []
    if request.topics is None:
        for name, partitions in committed.items():
            now = dict(partitions)
            asked.append(_Asked(name, ZERO_UUID, now, now))
    else:
        for topic in request.topics:
            there = committed.get(topic.name, {})
            wanted = topic.partition_indexes
            stored = {number: there[number] for number in wanted if number in there}
            asked.append(_Asked(topic.name, topic.topic_id, wanted, stored))
    return _fetch_steps(request.group_id, asked, pending)


class _Asked(NamedTuple):
    """A topic of an OffsetFetch, and its committed offsets at the time of the request."""

    name: str
    topic_id: bytes
    partitions: Iterable[int]
    stored: Mapping[int, bytes]


def _fetch_steps(group_id: str, asked: list[_Asked], pending: set[tuple[str, int]]) -> Steps[Any]:
    cls = response(ApiKey.OFFSET_FETCH).cls.Groups
    topics, pace = [], Pace()
    for name, topic_id, partitions, stored in asked:
        slots = []
        for partition in partitions:
            slot = cls.Topics.Partitions(
                partition_index=partition, committed_offset=NO_OFFSET, metadata=""
            )
            slots.append(slot)
            if (name, partition) in pending:
                slot.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
            elif partition in stored:
                found = unpack(stored[partition]).committed
                if _is_of_topic(found.topic_id, topic_id):
                    slot.committed_offset = found.offset
                    slot.committed_leader_epoch = found.leader_epoch
                    slot.metadata = found.metadata
            if pace.is_step_over(_PARTITION_WORK):
                yield
        topics.append(cls.Topics(name=name, topic_id=topic_id, partitions=slots))
    return cls(group_id=group_id, topics=topics)


def _is_of_topic(stored: bytes, asked: bytes) -> bool:
    """True if an offset belongs to the requested topic, not to an earlier one of its name."""
    return stored == asked or ZERO_UUID in {stored, asked}
