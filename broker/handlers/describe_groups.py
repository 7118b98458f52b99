"""DescribeGroups (15): state and members of groups.

A long answer is made and encoded in slices.

Versions:

* 0: groups by name.
* 1: throttle time (KIP-124).
* 2: no new field; the client waits out a throttle, not the broker (KIP-219).
* 3: authorized operations (KIP-430).
* 4: instance ids of static members (KIP-345).
* 5: flexible (KIP-482).
* 6: GROUP_ID_NOT_FOUND with its text, in place of a group in state Dead (KIP-1043).
"""

import asyncio
from typing import Any, Final

from broker.coordinator.group import refusals
from broker.coordinator.service import GroupCoordinator
from broker.handlers.errors_out import code_of
from broker.handlers.group_shards import awaited
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from runtime.work import Pace, run_in_steps

_Response: Final = response(ApiKey.DESCRIBE_GROUPS).cls

ALL_GROUP_OPERATIONS: Final = 3400
"""Bits of a group's ACL operations, all allowed: there is no authorizer."""
_GROUP_WORK: Final = 30
_MEMBER_WORK: Final = 5
_AT_ONCE_MAX: Final = 500
"""Answers with more groups and members are encoded in slices."""


class DescribeGroupsHandler(DecodedHandler):
    """Serves DescribeGroups 0-6."""

    api_key = ApiKey.DESCRIBE_GROUPS
    versions = Versions(0, 6)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Describe each group; one that is not served here gets its own error."""
        slots, pace, size = [], Pace(), 0
        for group_id in request.groups:
            slot = await self._slot(group_id, context.api_version)
            slots.append(slot)
            size += 1 + len(slot.members)
            if pace.is_step_over(_GROUP_WORK + _MEMBER_WORK * len(slot.members)):
                await asyncio.sleep(0)
        if request.include_authorized_operations:
            for slot in slots:
                if not slot.error_code:
                    slot.authorized_operations = ALL_GROUP_OPERATIONS
        answer = _Response(groups=slots)
        if size <= _AT_ONCE_MAX:
            return answer
        codec = response(ApiKey.DESCRIBE_GROUPS)
        return await run_in_steps(codec.encode_steps(answer, context.api_version))

    async def _slot(self, group_id: str, version: int) -> Any:
        try:
            shard = self._coordinator.shard(group_id)
            return await awaited(
                shard.read(lambda state: state.describe(group_id, version=version))
            )
        except KafkaError as error:
            return refusals.describe(group_id, code_of(error, "describe a group"))


def make(parts: HandlerParts) -> DescribeGroupsHandler:
    """Make the handler of DescribeGroups."""
    return DescribeGroupsHandler(parts.groups)
