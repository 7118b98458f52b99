"""JoinGroup (11): makes the client a member of a group, and waits for the next generation.

The answer leaves when all members have joined or the rebalance timeout has passed. Later requests
of the connection wait for it.

Versions:

* 0: session timeout, protocols by name; the rebalance timeout is the session's.
* 1: rebalance timeout (KIP-62).
* 2: throttle time (KIP-124).
* 3: no new field; the client waits out a throttle, not the broker (KIP-219).
* 4: no new field; MEMBER_ID_REQUIRED gives a new member its id first (KIP-394).
* 5: static members by their instance id (KIP-345).
* 6: flexible (KIP-482).
* 7: the protocol's type in the answer (KIP-559).
* 8: a reason, for the log (KIP-800).
* 9: whether the leader may leave the assignment as it is (KIP-814).
"""

from typing import Any
from uuid import UUID

from broker.coordinator.group.decision import Caller, Decision, Now, Ticket
from broker.coordinator.group.state import GroupState
from broker.coordinator.service import GroupCoordinator
from broker.handlers.group_shards import changed, decided
from broker.handlers.parts import HandlerParts
from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from runtime.rng import Rng

_SINCE_NULL_PROTOCOL = 7


class JoinGroupHandler(DecodedHandler):
    """Serves JoinGroup 0-9."""

    api_key = ApiKey.JOIN_GROUP
    versions = Versions(0, 9)
    waits_for_others = True

    def __init__(self, coordinator: GroupCoordinator, rng: Rng) -> None:
        self._coordinator, self._rng = coordinator, rng

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Join the group; returns a future while the generation is not complete."""
        version = context.api_version
        caller = Caller(context.client_id, f"/{context.peer[0]}")
        uuid = str(UUID(bytes=self._rng.uuid()))

        def decide(state: GroupState, ticket: Ticket, now: Now) -> Decision:
            return state.join(ticket, caller, request, version=version, uuid=uuid, now=now)

        answer = decided(self._coordinator, self.api_key, request, decide)
        return answer if version >= _SINCE_NULL_PROTOCOL else changed(answer, _without_null)


def _without_null(answer: Any) -> Any:
    if answer.protocol_name is None:
        answer.protocol_name = ""
    return answer


def make(parts: HandlerParts) -> JoinGroupHandler:
    """Make the handler of JoinGroup."""
    return JoinGroupHandler(parts.groups, parts.ports.rng)
