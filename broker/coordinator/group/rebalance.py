"""How a classic group gets from one generation to the next.

A rebalance asks all members to join again (`prepare`). It waits until all have joined or the time
is up, and then begins the next generation (`complete_join`). The leader's assignment makes the
group stable (`syncing`). A group that was empty first waits `group.initial.rebalance.delay.ms`, and
longer while members join (KIP-134), so that the first generation has more than the first member.
"""

from typing import Any

from broker.coordinator.group import refusals
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import TimerKind
from broker.coordinator.group.decision_builder import DecisionBuilder
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.member import Member
from broker.coordinator.group.records import group_record
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response


def prepare_or_complete(builder: DecisionBuilder, group: ClassicGroup) -> None:
    """Begin a rebalance, or end the running join phase if all members have joined."""
    if group.can_rebalance:
        prepare(builder, group)
    else:
        complete_if_all_joined(builder, group)


def prepare(builder: DecisionBuilder, group: ClassicGroup) -> None:
    """Begin a rebalance: parked SyncGroups get REBALANCE_IN_PROGRESS."""
    if group.status is GroupStatus.COMPLETING_REBALANCE:
        reset_assignments(builder, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    builder.cancel_group_timer(group, TimerKind.SYNC)
    was_empty = group.status is GroupStatus.EMPTY
    group.move(GroupStatus.PREPARING_REBALANCE, builder.now.wall_ms)
    if was_empty:
        delay_ms = builder.limits.initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        builder.set_group_timer(group, TimerKind.JOIN, delay_ms)
    elif group.all_joined:
        complete_join(builder, group)
    else:
        builder.set_group_timer(group, TimerKind.JOIN, group.rebalance_timeout_ms)


def complete_if_all_joined(builder: DecisionBuilder, group: ClassicGroup) -> None:
    """End the join phase if all have joined; an initial one only ends with its delay."""
    if (
        group.status is GroupStatus.PREPARING_REBALANCE
        and group.previous is not GroupStatus.EMPTY
        and group.all_joined
    ):
        complete_join(builder, group)


def join_time_is_up(builder: DecisionBuilder, group: ClassicGroup) -> None:
    """The join phase's time is up: extend an initial delay, or begin the next generation."""
    if group.status is not GroupStatus.PREPARING_REBALANCE:
        return
    delay_ms = min(builder.limits.initial_rebalance_delay_ms, group.initial_delay_left_ms)
    if group.previous is GroupStatus.EMPTY and group.member_added and delay_ms > 0:
        group.member_added = False
        group.initial_delay_left_ms -= delay_ms
        builder.set_group_timer(group, TimerKind.JOIN, delay_ms)
    else:
        complete_join(builder, group)


def complete_join(builder: DecisionBuilder, group: ClassicGroup) -> None:
    """Begin the next generation with the members that joined.

    Dynamic members that did not join are removed. Static members stay until their session ends
    (KIP-345). If no member joined and static members are left, the wait begins again.
    """
    builder.cancel_group_timer(group, TimerKind.JOIN)
    group.member_added = False
    missing = [
        member
        for member in group.members.values()
        if member.join_ticket is None and not member.is_static
    ]
    for member in missing:
        group.remove(member.member_id)
        builder.cancel_session(group, member.member_id)
    if group.members and not group.elect_joined_leader():
        builder.set_group_timer(group, TimerKind.JOIN, group.rebalance_timeout_ms)
        return
    group.begin_generation(builder.now.wall_ms)
    if group.status is GroupStatus.EMPTY:
        # A failed append changes nothing: the earlier generation returns at the next load, with
        # members that time out.
        builder.write(group_record(group, {}))
        return
    for member in group.members.values():
        ticket = group.take_join(member)
        if ticket is not None:
            builder.answer(ticket, joined(group, member))
        member.is_new = False
        builder.keep_alive(group, member)
        group.pending_sync[member.member_id] = None
    builder.set_group_timer(group, TimerKind.SYNC, group.rebalance_timeout_ms)


def sync_time_is_up(builder: DecisionBuilder, group: ClassicGroup) -> None:
    """Remove members that did not send a SyncGroup in time; the others rebalance."""
    settled = {GroupStatus.COMPLETING_REBALANCE, GroupStatus.STABLE}
    if group.status not in settled or not group.pending_sync:
        return
    for member_id in list(group.pending_sync):
        member = group.remove(member_id)
        if member is not None:
            builder.cancel_session(group, member_id)
    prepare(builder, group)


def reset_assignments(builder: DecisionBuilder, group: ClassicGroup, error: ErrorCode) -> None:
    """Answer all parked SyncGroups with an error, and clear the assignments."""
    for member in group.members.values():
        group.assign(member, b"")
        if member.sync_ticket is not None:
            builder.answer(member.sync_ticket, refusals.sync(error))
            member.sync_ticket = None
            builder.keep_alive(group, member)


def remove_and_rebalance(builder: DecisionBuilder, group: ClassicGroup, member: Member) -> None:
    """Remove a member whose session ended; its parked requests are answered."""
    expel(builder, group, member)
    if group.status in {GroupStatus.STABLE, GroupStatus.COMPLETING_REBALANCE}:
        prepare_or_complete(builder, group)
    elif group.status is GroupStatus.PREPARING_REBALANCE and group.all_joined:
        complete_join(builder, group)


def expel(builder: DecisionBuilder, group: ClassicGroup, member: Member) -> None:
    """Remove a member; its parked requests get UNKNOWN_MEMBER_ID, so that it joins again."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    ticket = group.take_join(member)
    if ticket is not None:
        builder.answer(ticket, refusals.join(unknown))
    # DIFFERS: Kafka does not answer the parked SyncGroup of a member that leaves.
    if member.sync_ticket is not None:
        builder.answer(member.sync_ticket, refusals.sync(unknown))
        member.sync_ticket = None
    group.remove(member.member_id)
    builder.cancel_session(group, member.member_id)


def joined(group: ClassicGroup, member: Member, *, with_members: bool | None = None) -> Any:
    """The answer to a JoinGroup in this generation; the leader gets all members."""
    cls = response(ApiKey.JOIN_GROUP).cls
    if with_members is None:
        with_members = group.leader_id == member.member_id
    return cls(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id,
        member_id=member.member_id,
        members=_members_of(group) if with_members else [],
    )


def _members_of(group: ClassicGroup) -> list[Any]:
    slot = response(ApiKey.JOIN_GROUP).cls.Members
    protocol = group.protocol_name or ""
    return [
        slot(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(protocol),
        )
        for member in group.members.values()
    ]
