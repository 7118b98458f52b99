"""JoinGroup: a member joins, joins again, or joins under a new id. Pure.

KIPs: 62 (rebalance timeout), 134 (initial delay), 345 (static members), 394 (a member id is
required first), 559 (protocol type and name in answers), 800 (reasons), 814 (the leader skips the
assignment).
"""

from typing import Any

from broker.coordinator.group import refusals
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import SetTimer
from broker.coordinator.group.decision_builder import DecisionBuilder, session_key
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.member import (
    MEMBER_BYTES,
    Asked,
    Member,
    protocol_bytes,
    protocols_of,
)
from broker.coordinator.group.rebalance import (
    complete_if_all_joined,
    joined,
    prepare_or_complete,
    remove_and_rebalance,
)
from broker.coordinator.group.static_rejoin import rejoin_static
from kafka_protocol.errors import ErrorCode

_MEMBER_ID_REQUIRED_FROM = 4
_STRING_BYTES_MAX = 32_767


def join(builder: DecisionBuilder, group: ClassicGroup, asked: Asked) -> None:
    """Decide on a JoinGroup to an existing group."""
    member_id = asked.request.member_id
    names = {each.name for each in asked.request.protocols}
    if not _has_place(builder, group, member_id):
        _refuse_place(builder, group, asked)
    elif not group.supports(asked.request.protocol_type, names):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        builder.answer(asked.ticket, refusals.join(error, member_id))
    elif not member_id:
        _join_new(builder, group, asked)
    elif member_id in group.pending:
        _join_pending(builder, group, asked)
    else:
        _join_again(builder, group, asked)


def has_memory(builder: DecisionBuilder, group: ClassicGroup | None, asked: Asked) -> bool:
    """True if there is memory for the data that a JoinGroup would add.

    True for an existing member whose protocols are not larger than before, or small.
    """
    request = asked.request
    said = protocol_bytes(protocols_of(request))
    if group is not None:
        member = _known_member(group, request)
        if member is not None:
            before = protocol_bytes(member.protocols)
            return said <= max(before, MEMBER_BYTES) or builder.takes(said - before)
        if request.member_id and request.member_id not in group.pending:
            return True  # an unknown member is refused, so nothing will be added
    texts = 2 * len(asked.caller.client_id) + 2 * len(request.group_instance_id or "")
    return builder.takes(MEMBER_BYTES + texts + said)


def refuse_for_memory(builder: DecisionBuilder, group: ClassicGroup | None, asked: Asked) -> None:
    """Refuse a JoinGroup for lack of memory; the group continues without the member.

    DIFFERS: Kafka has no such bound. Clients report GROUP_MAX_SIZE_REACHED to the application.
    """
    member = None if group is None else _known_member(group, asked.request)
    if group is not None and member is None:
        _refuse_place(builder, group, asked)
        return
    builder.answer(asked.ticket, refusals.join(ErrorCode.GROUP_MAX_SIZE_REACHED))
    if group is not None and member is not None:
        remove_and_rebalance(builder, group, member)


def _known_member(group: ClassicGroup, request: Any) -> Member | None:
    """The member that a JoinGroup refers to; None for a new one, or if the ids are invalid."""
    member_id, instance_id = request.member_id, request.group_instance_id
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    if group.refusal_of(member_id, instance_id) is not None:
        return None
    return group.members[member_id]


def _has_place(builder: DecisionBuilder, group: ClassicGroup, member_id: str) -> bool:
    """True if `group.max.size` allows the member.

    During a join phase, members that have joined count. So after the limit was lowered, the members
    that join first stay.
    """
    limit = builder.limits.group_size_max
    member = group.members.get(member_id)
    if group.status is GroupStatus.EMPTY:
        return True
    if group.status is GroupStatus.PREPARING_REBALANCE:
        return (member is not None and member.join_ticket is not None) or group.joins < limit
    return member is not None or len(group.members) < limit


def _refuse_place(builder: DecisionBuilder, group: ClassicGroup, asked: Asked) -> None:
    member_id = asked.request.member_id
    instance_id = asked.request.group_instance_id
    is_member = group.refusal_of(member_id, instance_id) is None
    if is_member or member_id in group.pending:
        group.remove(member_id)
        builder.cancel_session(group, member_id)
    builder.answer(asked.ticket, refusals.join(ErrorCode.GROUP_MAX_SIZE_REACHED))
    # DIFFERS: Kafka waits for the rebalance timeout even if all remaining members have joined.
    complete_if_all_joined(builder, group)


def _join_new(builder: DecisionBuilder, group: ClassicGroup, asked: Asked) -> None:
    """Decide on a JoinGroup without a member id."""
    instance_id = asked.request.group_instance_id
    prefix = asked.caller.client_id if instance_id is None else instance_id
    member_id = f"{prefix}-{asked.uuid}"
    if len(member_id.encode()) > _STRING_BYTES_MAX:
        # It would fit neither into an answer nor into the group's record.
        builder.answer(asked.ticket, refusals.join(ErrorCode.UNKNOWN_SERVER_ERROR))
    elif instance_id is not None:
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            _add(builder, group, asked, member_id)
        else:
            rejoin_static(builder, group, group.members[old_id], asked, member_id)
    elif asked.version >= _MEMBER_ID_REQUIRED_FROM:
        deadline_ms = builder.now.monotonic_ms + asked.request.session_timeout_ms
        group.await_member(member_id, deadline_ms)
        builder.timers.append(SetTimer(session_key(group, member_id), deadline_ms))
        builder.answer(asked.ticket, refusals.join(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(builder, group, asked, member_id)


def _join_pending(builder: DecisionBuilder, group: ClassicGroup, asked: Asked) -> None:
    """Decide on a JoinGroup with a pending id; only dynamic members get one."""
    member_id = asked.request.member_id
    if asked.request.group_instance_id is not None:
        error = ErrorCode.UNKNOWN_SERVER_ERROR  # as in Kafka, where an exception causes it
        builder.answer(asked.ticket, refusals.join(error))
        return
    builder.cancel_session(group, member_id)
    _add(builder, group, asked, member_id)


def _add(builder: DecisionBuilder, group: ClassicGroup, asked: Asked, member_id: str) -> None:
    member = Member(
        member_id,
        asked.request.group_instance_id,
        asked.caller,
        asked.timeouts,
        protocols_of(asked.request),
    )
    member.is_new = True
    member.join_ticket = asked.ticket
    is_initial = group.previous is GroupStatus.EMPTY
    if group.status is GroupStatus.PREPARING_REBALANCE and is_initial:
        group.member_added = True
    group.add(member, asked.request.protocol_type)
    builder.keep_alive(group, member, builder.limits.new_member_join_timeout_ms)
    prepare_or_complete(builder, group)


def _join_again(builder: DecisionBuilder, group: ClassicGroup, asked: Asked) -> None:
    """Decide on a JoinGroup with a member id."""
    request = asked.request
    error = group.refusal_of(request.member_id, request.group_instance_id)
    if error is not None:
        builder.answer(asked.ticket, refusals.join(error, request.member_id))
        return
    member = group.members[request.member_id]
    if group.status is GroupStatus.PREPARING_REBALANCE:
        _update(builder, group, asked)
    elif group.status is GroupStatus.COMPLETING_REBALANCE:
        if member.protocols == protocols_of(request):
            # It may have missed the answer: the generation is still its own.
            builder.answer(asked.ticket, joined(group, member))
        else:
            _update(builder, group, asked)
    elif group.leader_id == member.member_id or member.protocols != protocols_of(request):
        # A leader joins again when topics changed; its metadata may be the same.
        _update(builder, group, asked)
    else:
        builder.answer(asked.ticket, joined(group, member, with_members=False))


def _update(builder: DecisionBuilder, group: ClassicGroup, asked: Asked) -> None:
    member = group.members[asked.request.member_id]
    _supersede(builder, group, member)
    group.update(member, protocols_of(asked.request), asked.timeouts)
    group.park_join(member, asked.ticket)
    prepare_or_complete(builder, group)


def _supersede(builder: DecisionBuilder, group: ClassicGroup, member: Member) -> None:
    """Answer a member's parked JoinGroup when its next one arrives.

    DIFFERS: Kafka drops the earlier one, and its connection waits for an answer without end.
    """
    ticket = group.take_join(member)
    if ticket is not None:
        error = ErrorCode.REBALANCE_IN_PROGRESS
        builder.answer(ticket, refusals.join(error, member.member_id))
