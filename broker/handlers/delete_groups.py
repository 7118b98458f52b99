"""DeleteGroups (42): deletes groups without members, and their offsets.

Very many offsets are deleted in several decisions, and the group after them. After a crash in
between, or if a member joins, the group still exists with fewer offsets, and the answer is no
success.

Versions:

* 0: groups by name (KIP-229).
* 1: no new field; the client waits out a throttle, not the broker (KIP-219).
* 2: flexible (KIP-482).
"""

import asyncio
from typing import Any, Final

from broker.coordinator.group import refusals
from broker.coordinator.group.decision import Decision, Now, Ticket
from broker.coordinator.group.state import GroupState
from broker.coordinator.service import GroupCoordinator
from broker.handlers.errors_out import code_of
from broker.handlers.group_shards import awaited
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from runtime.work import Pace

_Response: Final = response(ApiKey.DELETE_GROUPS).cls
_GROUP_WORK: Final = 100
"""Work units of a group without offsets; a group of 1,000 takes a slice of its own."""


class DeleteGroupsHandler(DecodedHandler):
    """Serves DeleteGroups 0-2."""

    api_key = ApiKey.DELETE_GROUPS
    versions = Versions(0, 2)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Delete each group; duplicates are answered once."""
        names = dict.fromkeys(request.groups_names)
        slots, pace = [], Pace()
        for group_id in names:
            slots.append(await self._slot(group_id))
            if pace.is_step_over(_GROUP_WORK):
                await asyncio.sleep(0)
        return _Response(results=slots)

    async def _slot(self, group_id: str) -> Any:
        def thin_out(state: GroupState, ticket: Ticket, now: Now) -> Decision:
            return state.thin_out_group(ticket, group_id, now=now)

        def delete(state: GroupState, ticket: Ticket, now: Now) -> Decision:
            return state.delete_group(ticket, group_id, now=now)

        try:
            while (shard := self._coordinator.shard(group_id)).state.has_many_offsets(group_id):
                slot = await awaited(shard.run(thin_out))
                if slot.error_code:
                    return slot
                await asyncio.sleep(0)
            return await awaited(shard.run(delete))
        except KafkaError as error:
            return refusals.delete_group(group_id, code_of(error, "delete a group"))


def make(parts: HandlerParts) -> DeleteGroupsHandler:
    """Make the handler of DeleteGroups."""
    return DeleteGroupsHandler(parts.groups)
