"""ListGroups (16): the groups that this broker coordinates.

A long answer is made and encoded in slices.

Versions:

* 0: all groups.
* 1: throttle time (KIP-124).
* 2: no new field; the client waits out a throttle, not the broker (KIP-219).
* 3: flexible (KIP-482).
* 4: their states, and which states are asked for (KIP-518).
* 5: their types, and which types are asked for (KIP-848).
"""

import asyncio
from typing import Any, Final

from broker.coordinator.service import GroupCoordinator
from broker.handlers.errors_out import code_of
from broker.handlers.group_shards import awaited
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import LongArray, response
from kafka_protocol.wire.schema import Versions
from runtime.work import run_in_steps

_Response: Final = response(ApiKey.LIST_GROUPS).cls
_Group: Final = _Response.Groups

_AT_ONCE_MAX: Final = 1_000


class ListGroupsHandler(DecodedHandler):
    """Serves ListGroups 0-5."""

    api_key = ApiKey.LIST_GROUPS
    versions = Versions(0, 5)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """List the groups; an error of one shard fails the whole answer."""
        states = {state.lower() for state in request.states_filter}
        types = {name.lower() for name in request.types_filter}
        listed: list[Any] = []
        try:
            for shard in self._coordinator.all_shards():
                found = await awaited(shard.read(lambda state: list(state.groups())))
                for start in range(0, len(found), _AT_ONCE_MAX):
                    listed += [
                        _Group(
                            group_id=group_id,
                            protocol_type=protocol_type,
                            group_state=state,
                            group_type=kind.lower(),
                        )
                        for group_id, protocol_type, state, kind in found[start:][:_AT_ONCE_MAX]
                        if (not states or state.lower() in states)
                        and (not types or kind.lower() in types)
                    ]
                    await asyncio.sleep(0)
        except KafkaError as error:
            return _Response(error_code=code_of(error, "list groups"))
        if len(listed) <= _AT_ONCE_MAX:
            return _Response(groups=listed)
        answer = _Response(groups=LongArray(len(listed), iter(listed)))
        codec = response(ApiKey.LIST_GROUPS)
        return await run_in_steps(codec.encode_steps(answer, context.api_version))


def make(parts: HandlerParts) -> ListGroupsHandler:
    """Make the handler of ListGroups."""
    return ListGroupsHandler(parts.groups)
