"""Heartbeat, LeaveGroup and the end of sessions. Pure.

KIPs: 345 (removal by instance id, batches), 800 (reasons).
"""

from typing import Any

from broker.coordinator.group import refusals
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import SetTimer, Ticket
from broker.coordinator.group.decision_builder import DecisionBuilder, session_key
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.rebalance import (
    complete_if_all_joined,
    complete_join,
    expel,
    prepare_or_complete,
    remove_and_rebalance,
)
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response

_BATCHES_FROM = 3


def heartbeat(builder: DecisionBuilder, group: ClassicGroup, ticket: Ticket, request: Any) -> None:
    """Decide on a Heartbeat to an existing group."""
    error = group.refusal_of(request.member_id, request.group_instance_id)
    if error is None and request.generation_id != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is None:
        builder.keep_alive(group, group.members[request.member_id])
        if group.status is GroupStatus.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    builder.answer(ticket, refusals.heartbeat(error or ErrorCode.NONE))


def leave(
    builder: DecisionBuilder, group: ClassicGroup | None, ticket: Ticket, request: Any, version: int
) -> None:
    """Decide on a LeaveGroup; in a missing group each member is unknown."""
    cls = response(ApiKey.LEAVE_GROUP).cls
    if version < _BATCHES_FROM:
        error = _leave_one(builder, group, request.member_id, None)
        builder.answer(ticket, cls(error_code=error))
        gone = error is ErrorCode.NONE
    else:
        slots = [
            cls.Members(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=_leave_one(builder, group, each.member_id, each.group_instance_id),
            )
            for each in request.members
        ]
        builder.answer(ticket, cls(members=slots))
        gone = any(slot.error_code == ErrorCode.NONE for slot in slots)
    if group is None or not gone:
        return
    if group.status is GroupStatus.PREPARING_REBALANCE:
        complete_if_all_joined(builder, group)
    elif group.status in {GroupStatus.STABLE, GroupStatus.COMPLETING_REBALANCE}:
        prepare_or_complete(builder, group)


def _leave_one(
    builder: DecisionBuilder, group: ClassicGroup | None, member_id: str, instance_id: str | None
) -> ErrorCode:
    """Remove one member; without a member id an administrator removes a static member."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not member_id:
        member_id = group.static_members.get(instance_id or "", "")
        if instance_id is None or not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending:
        group.remove(member_id)
        builder.cancel_session(group, member_id)
        return ErrorCode.NONE
    error = group.refusal_of(member_id, instance_id)
    if error is not None:
        return error
    expel(builder, group, group.members[member_id])
    return ErrorCode.NONE


def session_timer_fired(builder: DecisionBuilder, group: ClassicGroup, member_id: str) -> None:
    """End a session, unless the member sent a request since its timer was set."""
    pending_until_ms = group.pending.get(member_id)
    if pending_until_ms is not None:
        if builder.now.monotonic_ms < pending_until_ms:
            builder.timers.append(SetTimer(session_key(group, member_id), pending_until_ms))
            return
        group.remove(member_id)
        if group.status is GroupStatus.PREPARING_REBALANCE and group.all_joined:
            complete_join(builder, group)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    member.timer_ms = None
    if builder.now.monotonic_ms < member.deadline_ms:
        member.timer_ms = member.deadline_ms
        builder.timers.append(SetTimer(session_key(group, member_id), member.deadline_ms))
    elif not member.waits_by_request:
        # A parked request replaces heartbeats; its answer restarts the session.
        remove_and_rebalance(builder, group, member)
