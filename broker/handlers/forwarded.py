"""What a client asks of this broker while the active controller is in another process.

The request goes on as it came, in an Envelope, and its answer comes back as it is. While there
is no active controller the client waits, as at a broker of Kafka, for as long as it allows: many
clients (librdkafka's) hand NOT_CONTROLLER to their caller instead of asking again. A request
without an answer is not tried again, so that no controller does anything twice. One that was
deposed refuses all that waited, also what it had begun: as in Kafka the next controller is asked
again, which may have found the change in its log.
"""

from inspect import isawaitable
from typing import Any, Final, Protocol

from broker.network.registry import DecodedHandler, RequestContext
from broker.node.active_controller import ActiveController
from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from runtime.clock import Clock
from runtime.scheduler import Scheduler, pause

_GRACE_MS: Final = 1_000
"""Beyond what the request allows, for the way."""
RETRY_MS: Final = 50
"""Between two attempts to find the active controller: an election takes seconds."""


class Refusable(Protocol):
    """A handler that can also answer that nothing was done."""

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """The answer to a request of which nothing can be said but `error`."""
        ...


class Forwarded(DecodedHandler):
    """A handler whose requests are served here only while the active controller is here."""

    def __init__(
        self, here: DecodedHandler, active: ActiveController, clock: Clock, scheduler: Scheduler
    ) -> None:
        """Nothing is asked yet.

        Args:
            here: serves while this node is the active controller, and words refusals.
            active: the way to the active controller.
            clock: measures how long a client has waited.
            scheduler: wakes a request that waits for an active controller.
        """
        assert hasattr(here, "refuse"), f"{here.api_key.name} cannot be refused as a whole"
        self.api_key, self.versions = here.api_key, here.versions
        self._here, self._active = here, active
        self._clock, self._scheduler = clock, scheduler
        # Of a quorum without a leader an operator wants to hear at once.
        self._waits = here.api_key != ApiKey.DESCRIBE_QUORUM

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Serve a request here or there."""
        if self._active.is_here and (self._active.has_begun or not self._waits):
            return self._here.handle(context, request)
        return self._there(context, request)

    async def _there(self, context: RequestContext, request: Any) -> Any:
        allowed_ms = getattr(request, "timeout_ms", 0)
        end_ms = self._clock.monotonic_ms() + (
            allowed_ms if allowed_ms > 0 else DECISION_TIMEOUT_MS
        )
        await self._until_begun(end_ms)
        while not self._active.is_here:
            left_ms = max(end_ms - self._clock.monotonic_ms(), 0)
            try:
                return await self._active.forward(context, request, timeout_ms=left_ms + _GRACE_MS)
            except KafkaError as error:
                may_wait = self._waits and isinstance(error, NotControllerError)
                if not may_wait or end_ms - self._clock.monotonic_ms() <= RETRY_MS:
                    refusable: Refusable = self._here
                    return refusable.refuse(context, request, error)
            await pause(self._scheduler, RETRY_MS)
            await self._until_begun(end_ms)
        answer = self._here.handle(context, request)
        return await answer if isawaitable(answer) else answer

    async def _until_begun(self, end_ms: int) -> None:
        """Wait until somebody takes decisions, as far as is known; not beyond the end."""
        if not self._waits:
            return
        while not self._active.has_begun and end_ms - self._clock.monotonic_ms() > RETRY_MS:
            await pause(self._scheduler, RETRY_MS)
