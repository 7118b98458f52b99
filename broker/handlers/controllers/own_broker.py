"""Who speaks for this node's own broker is told by the channel: the process, never the wire.

A stranger at the controllers' listener could guess the epoch of the broker in this process, fence
it or take its id over. For other ids the wire is the only channel; that needs authentication.

DIFFERS: Kafka's combined node sends itself its requests over the wire, and takes anybody's.
"""

import logging
from typing import Any, Final

from broker.network.registry import DecodedHandler, RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from runtime.clock import Clock
from runtime.disk_errors import Seldom
from runtime.log_context import escape

log = logging.getLogger(__name__)

_CODES: Final = {ApiKey.BROKER_REGISTRATION: ErrorCode.DUPLICATE_BROKER_REGISTRATION}


class FromTheWire(DecodedHandler):
    """A handler of requests by which a broker speaks for itself, behind a listener."""

    def __init__(self, here: DecodedHandler, own_broker_id: int, clock: Clock) -> None:
        """Refuse requests in the name of `own_broker_id`; a line a minute says so."""
        self.api_key, self.versions = here.api_key, here.versions
        self._here, self._own_broker_id, self._seldom = here, own_broker_id, Seldom(clock)

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Answer, or refuse."""
        if request.broker_id != self._own_broker_id:
            return self._here.handle(context, request)
        code = _CODES.get(self.api_key, ErrorCode.STALE_BROKER_EPOCH)
        self._seldom.error(
            log,
            f"{self.api_key.name} in the name of this node's own broker was refused: "
            f"broker_id={request.broker_id} peer={context.peer[0]}:{context.peer[1]} "
            f"client_id={escape(context.client_id)}; its process asks its controller directly, so "
            "another node has this node.id, or somebody tries the port",
        )
        return response(self.api_key).cls(error_code=int(code))
