"""DescribeGroups: a group as administrators see it. Pure.

Source: KIP-1043 (v6: groups that are not there are an error with a message).
"""

from typing import Any

from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.member import Member
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response

_NOT_FOUND_FROM = 6


def describe(group: ClassicGroup) -> Any:
    """The group's slot; what members subscribed to is told of stable groups only."""
    cls = response(ApiKey.DESCRIBE_GROUPS).cls.Groups
    is_stable = group.status is GroupStatus.STABLE
    protocol = (group.protocol_name or "") if is_stable else ""
    return cls(
        group_id=group.group_id,
        group_state=group.status.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[
            _member(cls.Members, member, member.metadata(protocol) if is_stable else b"")
            for member in group.members.values()
        ],
    )


def describe_missing(group_id: str, version: int, *, is_of_other_type: bool) -> Any:
    """The slot of a group that is not there, or that another protocol owns."""
    cls = response(ApiKey.DESCRIBE_GROUPS).cls.Groups
    slot = cls(group_id=group_id, group_state=GroupStatus.DEAD.value)
    if version >= _NOT_FOUND_FROM:
        slot.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        ending = "is not a classic group." if is_of_other_type else "not found."
        slot.error_message = f"Group {group_id} {ending}"
    return slot


def _member(cls: Any, member: Member, metadata: bytes) -> Any:
    return cls(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.caller.client_id,
        client_host=member.caller.client_host,
        member_metadata=metadata,
        member_assignment=member.assignment,
    )
