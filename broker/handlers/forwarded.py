"""What a client asks of this broker while the active controller is in another process.

The request goes on as it came, in its own version, and its answer comes back as it is.
"""

from typing import Any, Final, Protocol

from broker.network.registry import DecodedHandler, RequestContext
from broker.node.active_controller import ActiveController
from kafka_protocol.errors import KafkaError

_GRACE_MS: Final = 1_000
"""Beyond what the request allows, for the way."""
_TIMEOUT_MS: Final = 30_000


class Refusable(Protocol):
    """A handler that can also answer that nothing was done."""

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """The answer to a request of which nothing can be said but `error`."""
        ...


class Forwarded(DecodedHandler):
    """A handler whose requests are served here only while the active controller is here."""

    def __init__(self, here: DecodedHandler, active: ActiveController) -> None:
        assert hasattr(here, "refuse"), f"{here.api_key.name} cannot be refused as a whole"
        self.api_key, self.versions = here.api_key, here.versions
        self._here, self._active = here, active

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Serve a request here or there."""
        if self._active.is_here:
            return self._here.handle(context, request)
        return self._there(context, request)

    async def _there(self, context: RequestContext, request: Any) -> Any:
        timeout_ms = max(getattr(request, "timeout_ms", _TIMEOUT_MS), 1) + _GRACE_MS
        try:
            return await self._active.ask(
                self.api_key, context.api_version, request, timeout_ms=timeout_ms
            )
        except KafkaError as error:
            refusable: Refusable = self._here
            return refusable.refuse(context, request, error)
