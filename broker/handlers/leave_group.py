"""LeaveGroup (13): removes members, on their own or an admin's request.

Versions:

* 0: one member, by its id.
* 1: throttle time (KIP-124).
* 2: no new field; the client waits out a throttle, not the broker (KIP-219).
* 3: several members, by member id or by instance id (KIP-345).
* 4: flexible (KIP-482).
* 5: a reason for each, for the log (KIP-800).
"""

from typing import Any

from broker.coordinator.group.decision import Decision, Now, Ticket
from broker.coordinator.group.state import GroupState
from broker.coordinator.service import GroupCoordinator
from broker.handlers.group_shards import decided
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions


class LeaveGroupHandler(DecodedHandler):
    """Serves LeaveGroup 0-5."""

    api_key = ApiKey.LEAVE_GROUP
    versions = Versions(0, 5)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Remove the members; each gets its own error."""
        version = context.api_version

        def decide(state: GroupState, ticket: Ticket, now: Now) -> Decision:
            return state.leave(ticket, request, version=version, now=now)

        return decided(self._coordinator, self.api_key, request, decide)


def make(parts: HandlerParts) -> LeaveGroupHandler:
    """Make the handler of LeaveGroup."""
    return LeaveGroupHandler(parts.groups)
