"""SyncGroup (14): the group's leader sends the assignment, and each member gets its part.

The answer leaves when the assignment is committed.

Versions:

* 0: the generation's assignment.
* 1: throttle time (KIP-124).
* 2: no new field; the client waits out a throttle, not the broker (KIP-219).
* 3: static members by their instance id (KIP-345).
* 4: flexible (KIP-482).
* 5: type and name of the protocol, which must be those of the generation (KIP-559).
"""

from typing import Any

from broker.coordinator.group import refusals
from broker.coordinator.group.decision import Decision, Now, Ticket
from broker.coordinator.group.state import GroupState
from broker.coordinator.group.syncing import lacks_protocol
from broker.coordinator.service import GroupCoordinator
from broker.handlers.group_shards import decided
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions


class SyncGroupHandler(DecodedHandler):
    """Serves SyncGroup 0-5."""

    api_key = ApiKey.SYNC_GROUP
    versions = Versions(0, 5)
    waits_for_others = True

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Sync a member; returns a future until the assignment is committed."""
        version = context.api_version
        if lacks_protocol(request, version):  # before the check of the group id, as in Kafka
            return refusals.sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

        def decide(state: GroupState, ticket: Ticket, now: Now) -> Decision:
            return state.sync(ticket, request, version=version, now=now)

        return decided(self._coordinator, self.api_key, request, decide)


def make(parts: HandlerParts) -> SyncGroupHandler:
    """Make the handler of SyncGroup."""
    return SyncGroupHandler(parts.groups)
