"""A static member joins without its id, because its process restarted (KIP-345). Pure.

The member keeps its place under a new id, and requests with the old id are fenced. A stable group
whose protocol does not change does not rebalance: the new id is written, and the member gets the
current generation. Answers of JoinGroup v9 say that the assignment can be skipped (KIP-814). Older
ones name the old id as leader, so that no member computes an assignment.
"""

from dataclasses import dataclass
from typing import Any

from broker.coordinator.group import refusals
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import NOTHING, Decision, Now
from broker.coordinator.group.decision_builder import DecisionBuilder, GroupLimits, Totals
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.member import Asked, Member, Protocols, Timeouts, protocols_of
from broker.coordinator.group.rebalance import (
    complete_if_all_joined,
    joined,
    prepare,
    prepare_or_complete,
)
from broker.coordinator.group.records import group_record
from kafka_protocol.errors import ErrorCode

_SKIP_ASSIGNMENT_FROM = 9


def rejoin_static(
    builder: DecisionBuilder, group: ClassicGroup, member: Member, asked: Asked, new_id: str
) -> None:
    """Give a static member's place to `new_id`."""
    before = _Before(member.member_id, member.protocols, member.timeouts, group.leader_id)
    _fence(builder, group, member)
    _rename(builder, group, member, new_id)
    group.update(member, protocols_of(asked.request), asked.timeouts)
    group.park_join(member, asked.ticket)
    builder.keep_alive(group, member)
    if group.status is GroupStatus.PREPARING_REBALANCE:
        complete_if_all_joined(builder, group)
    elif group.status is GroupStatus.COMPLETING_REBALANCE:
        # The leader may be assigning partitions to the old id now.
        prepare(builder, group)
    elif group.winner() == group.protocol_name:
        record = group_record(
            group, {each.member_id: each.assignment for each in group.members.values()}
        )
        rejoin = _Rejoin(group, member, asked, before, builder.limits, builder.totals)
        builder.write(record, then=rejoin.written)
    else:
        prepare_or_complete(builder, group)


def _fence(builder: DecisionBuilder, group: ClassicGroup, member: Member) -> None:
    """Answer parked requests of the old id with FENCED_INSTANCE_ID."""
    fenced = ErrorCode.FENCED_INSTANCE_ID
    builder.answer(group.take_join(member), refusals.join(fenced, member.member_id))
    builder.answer(member.sync_ticket, refusals.sync(fenced))
    member.sync_ticket = None


def _rename(builder: DecisionBuilder, group: ClassicGroup, member: Member, member_id: str) -> None:
    builder.cancel_session(group, member.member_id)
    member.timer_ms = None
    group.rename(member, member_id)


@dataclass(frozen=True, slots=True)
class _Before:
    """The earlier state of the member, restored if its new id cannot be written."""

    member_id: str
    protocols: Protocols
    timeouts: Timeouts
    leader_id: str | None


@dataclass(frozen=True, slots=True)
class _Rejoin:
    """The end of a rejoin in a stable group, after its record is committed or has failed."""

    group: ClassicGroup
    member: Member
    asked: Asked
    before: _Before
    limits: GroupLimits
    totals: Totals

    def written(self, error: ErrorCode | None, now: Now) -> Decision:
        """Answer the JoinGroup, unless it has been answered by now."""
        if self.member.join_ticket != self.asked.ticket:
            return NOTHING
        builder = DecisionBuilder(self.limits, now, self.totals)
        if error is not None:
            self._take_back(builder, error)
        elif self.group.status is GroupStatus.STABLE:
            self.group.take_join(self.member)
            builder.answer(self.asked.ticket, self._answer())
            builder.keep_alive(self.group, self.member)  # its timer may have fired meanwhile
        # Otherwise a rebalance has begun, whose join phase answers.
        return builder.done()

    def _answer(self) -> Any:
        is_leader = self.group.leader_id == self.member.member_id
        if self.asked.version >= _SKIP_ASSIGNMENT_FROM:
            answer = joined(self.group, self.member, with_members=is_leader)
            answer.skip_assignment = is_leader
        else:
            answer = joined(self.group, self.member, with_members=False)
            answer.leader = self.before.leader_id
        return answer

    def _take_back(self, builder: DecisionBuilder, error: ErrorCode) -> None:
        group, member = self.group, self.member
        group.take_join(member)
        group.update(member, self.before.protocols, self.before.timeouts)
        _rename(builder, group, member, self.before.member_id)
        builder.keep_alive(group, member)
        answer = joined(group, member, with_members=False)
        answer.error_code = error
        answer.member_id = ""
        answer.leader = self.before.leader_id
        builder.answer(self.asked.ticket, answer)
        complete_if_all_joined(builder, group)
