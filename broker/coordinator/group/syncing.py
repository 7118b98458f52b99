"""SyncGroup: the leader sends the assignment, and each member gets its part. Pure.

The assignment is valid once its record is committed. Until then the group stays in
CompletingRebalance: SyncGroups are parked, and a member that joins begins the next rebalance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.coordinator.group import refusals
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import NOTHING, Decision, Now, Ticket, TimerKind
from broker.coordinator.group.decision_builder import DecisionBuilder, GroupLimits, Totals
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.member import MEMBER_BYTES, Member
from broker.coordinator.group.rebalance import (
    prepare_or_complete,
    remove_and_rebalance,
    reset_assignments,
)
from broker.coordinator.group.records import group_record
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response

_PROTOCOL_NAMED_FROM = 5


def lacks_protocol(request: Any, version: int) -> bool:
    """True if the request lacks the protocol type and name that it must have (KIP-559)."""
    is_named = request.protocol_type is not None and request.protocol_name is not None
    return version >= _PROTOCOL_NAMED_FROM and not is_named


def sync(builder: DecisionBuilder, group: ClassicGroup, ticket: Ticket, request: Any) -> None:
    """Decide on a SyncGroup to an existing group."""
    error = _refusal(group, request)
    if error is not None:
        builder.answer(ticket, refusals.sync(error))
        return
    member = group.members[request.member_id]
    _has_synced(builder, group, member)
    if group.status is GroupStatus.STABLE:
        builder.answer(ticket, _assignment_of(group, member))
        return
    if member.sync_ticket is not None:
        # DIFFERS: Kafka drops the earlier one, and its connection waits without end.
        builder.answer(member.sync_ticket, refusals.sync(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_ticket = ticket
    if group.leader_id == member.member_id and group.assigning != group.generation:
        # DIFFERS: the first assignment of a generation counts. In Kafka a second one follows it
        # into the log, and is valid after a restart. Assignments of non-members are ignored; a
        # member without one has an empty assignment.
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        if not _has_memory(builder, group, given):
            # DIFFERS: Kafka has no such bound. The next leader may make a smaller assignment.
            member.sync_ticket = None
            builder.answer(ticket, refusals.sync(ErrorCode.GROUP_MAX_SIZE_REACHED))
            remove_and_rebalance(builder, group, member)
            return
        group.assigning = group.generation
        assigned = _Assigned(group, group.generation, given, builder.limits, builder.totals)
        builder.write(group_record(group, given), then=assigned.written)


def _has_memory(builder: DecisionBuilder, group: ClassicGroup, given: Mapping[str, bytes]) -> bool:
    """True if there is memory for an assignment, or it is short, or not longer than before."""
    before = sum(len(member.assignment) for member in group.members.values())
    size = sum(len(given.get(member_id, b"")) for member_id in group.members)
    return size <= max(before, len(group.members) * MEMBER_BYTES) or builder.takes(size - before)


def _refusal(group: ClassicGroup, request: Any) -> ErrorCode | None:
    error = group.refusal_of(request.member_id, request.group_instance_id)
    if error is not None:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if _differs(request.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.status is GroupStatus.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def _differs(said: str | None, known: str | None) -> bool:
    """True if both are set and different (KIP-559); older clients send none."""
    return said is not None and known is not None and said != known


def _has_synced(builder: DecisionBuilder, group: ClassicGroup, member: Member) -> None:
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        builder.cancel_group_timer(group, TimerKind.SYNC)


def _assignment_of(group: ClassicGroup, member: Member) -> Any:
    return response(ApiKey.SYNC_GROUP).cls(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


@dataclass(frozen=True, slots=True)
class _Assigned:
    """The end of a rebalance, after the assignment's record is committed or has failed."""

    group: ClassicGroup
    generation: int
    given: dict[str, bytes]
    limits: GroupLimits
    totals: Totals

    def written(self, error: ErrorCode | None, now: Now) -> Decision:
        """Answer the parked members, unless the group is in another rebalance by now."""
        group = self.group
        is_current = group.generation == self.generation
        if not is_current or group.status is not GroupStatus.COMPLETING_REBALANCE:
            return NOTHING
        builder = DecisionBuilder(self.limits, now, self.totals)
        if error is not None:
            reset_assignments(builder, group, error)
            prepare_or_complete(builder, group)
            return builder.done()
        for member in group.members.values():
            group.assign(member, self.given.get(member.member_id, b""))
            if member.sync_ticket is not None:
                builder.answer(member.sync_ticket, _assignment_of(group, member))
                member.sync_ticket = None
                builder.keep_alive(group, member)
        group.move(GroupStatus.STABLE, now.wall_ms)
        self.totals.completed_rebalances += 1
        return builder.done()
