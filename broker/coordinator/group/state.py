"""The groups of one partition of `__consumer_offsets`, and all decisions on them.

A `GroupState` belongs to one shard, and only one thread uses it at a time. Each method takes a
decoded request and the current times. It changes the state and returns records, answers and timers
(`decision.Decision` defines their order). Requests that must wait keep their ticket in the state.
Each ticket is answered exactly once: by a later decision, or by `unload`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from broker.coordinator.group import offset_requests, refusals
from broker.coordinator.group.classic_group import (
    ClassicGroup,
    describe,
    describe_missing,
    group_bytes,
)
from broker.coordinator.group.decision import (
    NOTHING,
    Answer,
    Caller,
    DamagedRecord,
    Decision,
    GroupRecord,
    MemoryBudget,
    Now,
    Ticket,
    TimerKey,
    TimerKind,
)
from broker.coordinator.group.decision_builder import DecisionBuilder, GroupLimits, Totals
from broker.coordinator.group.deletion import (
    OFFSETS_AT_ONCE,
    delete_group,
    thin_out_group,
    topics_deleted,
)
from broker.coordinator.group.foreign import CONVERTIBLE, PROTOCOL_TYPES
from broker.coordinator.group.joining import has_memory, join, refuse_for_memory
from broker.coordinator.group.leaving import heartbeat, leave, session_timer_fired
from broker.coordinator.group.lifecycle import GroupStatus, GroupType
from broker.coordinator.group.member import Asked
from broker.coordinator.group.offsets import value_of
from broker.coordinator.group.rebalance import join_time_is_up, prepare, sync_time_is_up
from broker.coordinator.group.records import new_group_record, offset_of_value
from broker.coordinator.group.replaying import LoggedRecord, Replay
from broker.coordinator.group.retention import expired
from broker.coordinator.group.syncing import lacks_protocol, sync
from kafka_protocol.errors import ErrorCode
from runtime.work import Steps

__all__ = ["GroupCounts", "GroupLimits", "GroupProgress", "GroupState", "ListedGroup"]


class ListedGroup(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupProgress(NamedTuple):
    """State of a group; `offsets` is the number of its committed offsets."""

    group_id: str
    state: str
    members: int
    offsets: int


class GroupCounts(NamedTuple):
    """Counts for metrics and log lines.

    Attributes:
        groups: Classic groups by state; has all states.
        foreign_groups: Groups of protocols that are not served.
        members: Members of all classic groups.
        offsets: Committed offsets.
        pending_offsets: Partitions with commits of open transactions.
        unknown_records: Records of unknown types, by type.
        completed_rebalances: Generations that became stable.
    """

    groups: Mapping[GroupStatus, int]
    foreign_groups: int
    members: int
    offsets: int
    pending_offsets: int
    unknown_records: Mapping[int, int]
    completed_rebalances: int


class GroupState:
    """Groups and committed offsets of one partition.

    Attributes:
        limits: The settings; may be replaced at any time.
        totals: Counts since it was created.
    """

    def __init__(self, limits: GroupLimits, budget: MemoryBudget | None = None) -> None:
        """Begin without groups.

        Args:
            limits: The settings.
            budget: Bound on the memory of this state and others; None: no bound.
        """
        self.limits, self._budget = limits, budget or MemoryBudget()
        self.totals = Totals()
        self._replay = Replay()
        self._groups = self._replay.groups
        self._offsets = self._replay.offsets

    @property
    def kept_bytes(self) -> int:
        """Approximate memory of groups and offsets."""
        return self._replay.kept_bytes

    # Requests of members.

    def join(
        self,
        ticket: Ticket,
        caller: Caller,
        request: Any,
        *,
        version: int,
        uuid: str,
        now: Now,
    ) -> Decision:
        """Decide on a JoinGroup; its answer may wait for all members.

        Args:
            ticket: Ticket of the request.
            caller: Sender of the request.
            request: The decoded request.
            version: Version of the request.
            uuid: Fresh, for the id of a new member.
            now: The times.
        """
        builder = self._builder(now)
        error = self._join_refusal(request)
        if error is not None:
            builder.answer(ticket, refusals.join(error, request.member_id))
            return builder.done()
        group = self._group_or_begin(builder, request.group_id)
        asked = Asked(ticket, caller, request, version, uuid)
        if group is None and request.member_id:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            builder.answer(ticket, refusals.join(unknown, request.member_id))
        elif not has_memory(builder, group, asked):
            refuse_for_memory(builder, group, asked)
        elif group is None:
            self._first_join(builder, asked)
        else:
            join(builder, group, asked)
        return builder.done()

    def sync(self, ticket: Ticket, request: Any, *, version: int, now: Now) -> Decision:
        """Decide on a SyncGroup; its answer may wait for the leader's."""
        builder = self._builder(now)
        group = self._groups.get(request.group_id)
        if lacks_protocol(request, version):
            builder.answer(ticket, refusals.sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif not request.group_id:
            builder.answer(ticket, refusals.sync(ErrorCode.INVALID_GROUP_ID))
        elif group is None:
            builder.answer(ticket, refusals.sync(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            sync(builder, group, ticket, request)
        return builder.done()

    def heartbeat(self, ticket: Ticket, request: Any, *, now: Now) -> Decision:
        """Decide on a Heartbeat."""
        builder = self._builder(now)
        group = self._groups.get(request.group_id)
        if not request.group_id:
            builder.answer(ticket, refusals.heartbeat(ErrorCode.INVALID_GROUP_ID))
        elif group is None:
            builder.answer(ticket, refusals.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            heartbeat(builder, group, ticket, request)
        return builder.done()

    def leave(self, ticket: Ticket, request: Any, *, version: int, now: Now) -> Decision:
        """Decide on a LeaveGroup."""
        builder = self._builder(now)
        if not request.group_id:
            builder.answer(ticket, refusals.leave(ErrorCode.INVALID_GROUP_ID))
        else:
            leave(builder, self._groups.get(request.group_id), ticket, request, version)
        return builder.done()

    # Offsets.

    def commit_offsets(self, ticket: Ticket, request: Any, *, version: int, now: Now) -> Decision:
        """Decide on an OffsetCommit.

        Args:
            ticket: Ticket of the request.
            request: The decoded request; its topics have both name and id, a zero id if the topic
                is unknown.
            version: Version of the request.
            now: The times.
        """
        builder = self._builder(now)
        group = self._group_or_begin(builder, request.group_id)
        error = self._commit_refusal(request, version, in_transaction=False)
        if error is not None:
            builder.answer(ticket, refusals.commit(request, error))
        else:
            offset_requests.commit(builder, group, self._offsets, ticket, request)
        return builder.done()

    def commit_transaction_offsets(self, ticket: Ticket, request: Any, *, now: Now) -> Decision:
        """Decide on a TxnOffsetCommit; its records belong in a batch of the transaction."""
        builder = self._builder(now)
        error = self._commit_refusal(request, 0, in_transaction=True)
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        if error is not None:
            builder.answer(ticket, refusals.commit_in_transaction(request, error))
        else:
            self._group_or_begin(builder, request.group_id)
            offset_requests.commit_in_transaction(builder, self._offsets, ticket, request)
        return builder.done()

    def fetch_offsets(self, group_request: Any, *, require_stable: bool) -> Any:
        """Answer a group's part of an OffsetFetch (in the form of v8 and later).

        Args:
            group_request: Its topics have both name and id, a zero id if the topic is unknown; None
                instead of topics means all.
            require_stable: True if commits of open transactions are an error (KIP-447).
        """
        return offset_requests.fetch(self._offsets, group_request, require_stable=require_stable)

    def fetch_in_steps(self, group_request: Any, *, require_stable: bool) -> Steps[Any]:
        """Like `fetch_offsets`, in slices; the answer has the offsets of the time of the call."""
        return offset_requests.fetch_in_steps(
            self._offsets, group_request, require_stable=require_stable
        )

    def delete_offsets(self, ticket: Ticket, request: Any, *, now: Now) -> Decision:
        """Decide on an OffsetDelete."""
        builder = self._builder(now)
        if not request.group_id:
            builder.answer(ticket, refusals.delete_offsets(ErrorCode.INVALID_GROUP_ID))
        else:
            group = self._group_for_offsets(request.group_id)
            offset_requests.delete(builder, group, self._offsets, ticket, request)
        return builder.done()

    # Administration.

    def delete_group(self, ticket: Ticket, group_id: str, *, now: Now) -> Decision:
        """Decide on one group of a DeleteGroups; the answer is its slot."""
        builder = self._builder(now)
        delete_group(builder, self._replay, ticket, group_id)
        return replace(builder.done(), may_split=True)

    def has_many_offsets(self, group_id: str) -> bool:
        """True if a group has more offsets than one decision should delete."""
        return self._offsets.count_of(group_id) > OFFSETS_AT_ONCE

    def thin_out_group(self, ticket: Ticket, group_id: str, *, now: Now) -> Decision:
        """Delete some offsets of a group that `delete_group` could delete; same answers."""
        builder = self._builder(now)
        thin_out_group(builder, self._replay, ticket, group_id)
        return replace(builder.done(), may_split=True)

    def describe(self, group_id: str, *, version: int) -> Any:
        """Answer a group's part of a DescribeGroups."""
        group = self._groups.get(group_id)
        if group is not None:
            return describe(group)
        is_of_other_type = self._replay.foreign.type_of(group_id) is not None
        return describe_missing(group_id, version, is_of_other_type=is_of_other_type)

    def groups(self) -> Iterator[ListedGroup]:
        """All groups, for ListGroups; O(groups)."""
        for group in list(self._groups.values()):
            kind = group.protocol_type or ""
            yield ListedGroup(group.group_id, kind, group.status.value, GroupType.CLASSIC.value)
        for group_id, group_type in self._replay.foreign.items():
            kind = PROTOCOL_TYPES[group_type]
            yield ListedGroup(group_id, kind, GroupStatus.EMPTY.value, group_type.value)

    def progress(self) -> Iterator[GroupProgress]:
        """The state of all groups; may be iterated over many iterations of the loop."""
        for group in list(self._groups.values()):
            offsets = self._offsets.count_of(group.group_id)
            yield GroupProgress(group.group_id, group.status.value, len(group.members), offsets)

    def committed(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all commits.

        May be iterated over many iterations of the loop; the partitions of one topic are
        consistent. Open transactions are left out.
        """
        for group_id in list(self._offsets.groups):
            for topic, partitions in list(self._offsets.of_group(group_id).items()):
                for partition, stored in list(partitions.items()):
                    yield group_id, topic, partition, offset_of_value(value_of(stored))

    # Time.

    def timer_fired(self, key: TimerKey, now: Now) -> Decision:
        """Decide on the end of a wait; a timer that fires early is set again."""
        group = self._groups.get(key.group_id)
        if group is None:
            return NOTHING
        builder = self._builder(now)
        if key.kind is TimerKind.SESSION:
            session_timer_fired(builder, group, key.member_id)
        elif key.kind is TimerKind.JOIN:
            join_time_is_up(builder, group)
        else:
            sync_time_is_up(builder, group)
        return builder.done()

    def expire_offsets(self, now: Now) -> Iterator[Decision]:
        """Delete expired offsets and groups, in slices of bounded work.

        The records of a slice must be replayed before the next slice is requested.
        """
        keep_ms = self.limits.offsets_retention_ms
        for records in expired(self._groups, self._offsets, now.wall_ms, keep_ms):
            yield Decision(records=tuple(records), may_split=True)

    def topics_deleted(self, topics: Mapping[str, bytes], now: Now) -> Iterator[Decision]:
        """Delete the offsets of deleted topics, in slices of bounded work.

        Args:
            topics: Ids by name. Offsets of a later topic of the same name stay.
            now: The times.
        """
        for records in topics_deleted(self._offsets, topics):
            yield Decision(records=tuple(records), may_split=True)

    # Loading, and the end.

    def replay(
        self, key: bytes | None, value: bytes | None, *, offset: int, producer_id: int = -1
    ) -> None:
        """Replay one record: in a load, and after each append.

        Args:
            key: Key of the record.
            value: Value of the record, None for a tombstone.
            offset: Offset of the record.
            producer_id: Producer id of a transactional batch, which is pending until its marker.

        Raises:
            DamagedRecord: It cannot be decoded; nothing has changed.
        """
        self._replay.record(key, value, offset=offset, producer_id=producer_id)

    def replay_batch(
        self, records: Iterable[LoggedRecord], *, producer_id: int = -1
    ) -> list[DamagedRecord]:
        """Replay (offset, key, value) of a batch; returns the errors of undecodable records."""
        return self._replay.batch(records, producer_id)

    def replay_written(self, records: Iterable[GroupRecord], first_offset: int) -> None:
        """Replay the appended records of a decision of this state."""
        self._replay.written(records, first_offset)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Replay the marker that ends a transaction."""
        self._offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now: Now) -> Decision:
        """End the load: sessions of restored members begin, groups above their limit rebalance."""
        self._replay.is_live = True
        builder = self._builder(now)
        for group in self._groups.values():
            for member in group.members.values():
                builder.keep_alive(group, member)
            if len(group.members) > self.limits.group_size_max:
                prepare(builder, group)
        return builder.done()

    def unload(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> tuple[Answer, ...]:
        """Answer all parked requests; the state must not decide anything afterwards."""
        answers = []
        for group in self._groups.values():
            for member in group.members.values():
                ticket = group.take_join(member)
                if ticket is not None:
                    answers.append(Answer(ticket, refusals.join(error, member.member_id)))
                if member.sync_ticket is not None:
                    answers.append(Answer(member.sync_ticket, refusals.sync(error)))
                    member.sync_ticket = None
            group.status = GroupStatus.DEAD
        self._groups.clear()
        return tuple(answers)

    def let_go(self) -> Iterator[None]:
        """Free the memory of an unloaded state, in slices of bounded work.

        Freeing a million offsets at once would hold the interpreter lock for 50 ms and more.
        """
        return self._offsets.let_go()

    @property
    def counts(self) -> GroupCounts:
        """Counts for metrics; O(groups)."""
        by_status = Counter(group.status for group in self._groups.values())
        return GroupCounts(
            groups={status: by_status[status] for status in GroupStatus},
            foreign_groups=len(self._replay.foreign),
            members=sum(len(group.members) for group in self._groups.values()),
            offsets=self._offsets.count,
            pending_offsets=self._offsets.pending_count(),
            unknown_records=dict(self._replay.unknown),
            completed_rebalances=self.totals.completed_rebalances,
        )

    def _builder(self, now: Now) -> DecisionBuilder:
        return DecisionBuilder(self.limits, now, self.totals, self._budget)

    def _group_or_begin(self, builder: DecisionBuilder, group_id: str) -> ClassicGroup | None:
        """The group. For None, charge memory to a new group, unless another protocol has the id."""
        group = self._groups.get(group_id)
        if group is None and self._replay.foreign.type_of(group_id) is None:
            builder.begin_group(group_bytes(group_id))
        return group

    def _join_refusal(self, request: Any) -> ErrorCode | None:
        """The error of a JoinGroup that does not depend on the group's members."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        low, high = self.limits.session_timeout_min_ms, self.limits.session_timeout_max_ms
        if not low <= request.session_timeout_ms <= high:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        foreign = self._replay.foreign.type_of(request.group_id)
        if foreign is not None and foreign not in CONVERTIBLE:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _first_join(self, builder: DecisionBuilder, asked: Asked) -> None:
        """Decide on the JoinGroup of the first member of a new group."""
        group_id = asked.request.group_id
        group = ClassicGroup(group_id, since_ms=builder.now.wall_ms)
        builder.records.extend(self._replay.foreign.tombstones(group_id))
        join(builder, group, asked)
        self._replay.keep(group)

        def written(error: ErrorCode | None, now: Now) -> Decision:
            is_as_new = self._groups.get(group_id) is group and not group.generation
            if error is None or not is_as_new:
                return NOTHING  # a later generation has its own record
            return self._drop(group, error, now)

        assert builder.then is None
        builder.write(new_group_record(group), then=written)

    def _drop(self, group: ClassicGroup, error: ErrorCode, now: Now) -> Decision:
        """Remove a new group that could not be written; its parked requests get the error."""
        self._replay.forget(group.group_id)
        builder = self._builder(now)
        for member in group.members.values():
            builder.answer(group.take_join(member), refusals.join(error))
            builder.cancel_session(group, member.member_id)
        for member_id in group.pending:
            builder.cancel_session(group, member_id)
        builder.cancel_group_timer(group, TimerKind.JOIN)
        return builder.done()

    def _commit_refusal(
        self, request: Any, version: int, *, in_transaction: bool
    ) -> ErrorCode | None:
        group = self._group_for_offsets(request.group_id)
        return offset_requests.commit_refusal(
            group, request, version, in_transaction=in_transaction
        )

    def _group_for_offsets(self, group_id: str) -> ClassicGroup | None:
        """The group; an empty one stands for a group of another protocol."""
        group = self._groups.get(group_id)
        if group is None and self._replay.foreign.type_of(group_id) is not None:
            return ClassicGroup(group_id, since_ms=None)
        return group
