"""Heartbeat (12): a member's sign of life; the answer says whether the group rebalances.

Versions:

* 0: group, generation and member.
* 1: throttle time (KIP-124).
* 2: no new field; the client waits out a throttle, not the broker (KIP-219).
* 3: static members by their instance id (KIP-345).
* 4: flexible (KIP-482).
"""

from typing import Any

from broker.coordinator.group import refusals
from broker.coordinator.group.decision import Decision, Now, Ticket
from broker.coordinator.group.state import GroupState
from broker.coordinator.service import GroupCoordinator
from broker.handlers.group_shards import changed, decided
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions


class HeartbeatHandler(DecodedHandler):
    """Serves Heartbeat 0-4."""

    api_key = ApiKey.HEARTBEAT
    versions = Versions(0, 4)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Extend the member's session.

        While the group is being loaded the answer is NONE, as from Kafka. The session begins after
        the load anyway, and some clients leave the group after any error.
        """

        def decide(state: GroupState, ticket: Ticket, now: Now) -> Decision:
            return state.heartbeat(ticket, request, now=now)

        answer = decided(self._coordinator, self.api_key, request, decide)
        return changed(answer, _well_while_loading)


def _well_while_loading(answer: Any) -> Any:
    if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return refusals.heartbeat(ErrorCode.NONE)
    return answer


def make(parts: HandlerParts) -> HeartbeatHandler:
    """Make the handler of Heartbeat."""
    return HeartbeatHandler(parts.groups)
