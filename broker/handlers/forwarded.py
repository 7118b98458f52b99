"""Forwards clients' requests while the active controller is in another process.

The request is sent as it came, in an Envelope, and the answer is returned as it is. While there is
no active controller the client waits for as long as it allows, as at a broker of Kafka. Many
clients (librdkafka's) would return NOT_CONTROLLER to their caller instead of trying again.

A request that surely had no effect is retried. If the connection was lost, the request may have
been carried out. Then it waits for the controller of a later epoch, which has everything that the
earlier one committed, and cannot get the lost request any more. There the repeated request is
refused (TOPIC_ALREADY_EXISTS) or carried out a second time, over changes of other clients in
between. DIFFERS: Kafka's brokers also retry at the same controller, which may process the first
request after the second, and they repeat the requests of `_ONCE`.

Requests for topics that belong to the brokers are refused here, because controllers of Kafka would
carry them out.
"""

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, Final, Protocol, runtime_checkable

from broker.network.dispatch import decoded
from broker.network.registry import DecodedHandler, RequestContext
from broker.node.active_controller import ActiveController, Unanswered
from kafka_protocol.errors import KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from runtime.clock import Clock
from runtime.executors import Pool
from runtime.scheduler import Scheduler, pause
from runtime.work import Pace, Steps, run_in_steps

RETRY_MS: Final = 50
"""Between two look-ups of the active controller; an election takes seconds."""
RETRY_MAX_MS: Final = 1_000
"""Between two tries at one controller that refuses them: it may be overloaded."""


NEXT_MS: Final = 6_000
"""How long a lost change waits for the next controller: an election with default time-outs.

If only the connection was lost, no other controller comes.
"""
_MAKING: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS})
_ONCE: Final = frozenset({
    ApiKey.DELETE_TOPICS, ApiKey.UNREGISTER_BROKER, ApiKey.REMOVE_RAFT_VOTER,
})  # fmt: skip
"""Repeated, they could remove an object that another client created under the name in between."""
Settled = Callable[[Sequence[str]], Awaitable[None] | None]


class Refusable(Protocol):
    """A handler that can answer a request without carrying it out."""

    def refuse(self, context: RequestContext, request: Any, error: KafkaError) -> Any:
        """The answer with `error` for each entry of the request."""
        ...


@runtime_checkable
class Guarding(Protocol):
    """A handler that refuses topics of the brokers, entry by entry.

    Attributes:
        answered_in: Field of the answer with a result for each entry.
    """

    answered_in: str

    def asked_in(self, version: int, /) -> str:
        """Field of the request with the entries."""
        ...

    def guarded(self, entry: Any, /) -> Any | None:
        """The refusal of an entry; None for an entry that is allowed."""
        ...


class Forwarded(DecodedHandler):
    """Serves requests here while this node is the active controller, else forwards them."""

    def __init__(
        self,
        here: DecodedHandler,
        active: ActiveController,
        clock: Clock,
        scheduler: Scheduler,
        decoding: Pool,
        settled: Settled = lambda _names: None,
    ) -> None:
        """Forward nothing yet.

        Args:
            here: Serves requests while this node is the active controller, and makes refusals.
            active: Client of the active controller.
            clock: Measures how long a client has waited.
            scheduler: Wakes a request that waits for an active controller.
            decoding: Decodes long answers.
            settled: Waits for the replicas that this broker creates for new topics. A client writes
                to a new topic at once, and many producers resend out of order after a refusal.
        """
        assert hasattr(here, "refuse"), f"{here.api_key.name} cannot be refused as a whole"
        self.api_key, self.versions = here.api_key, here.versions
        self._here, self._active = here, active
        self._clock, self._scheduler, self._settled = clock, scheduler, settled
        self._decoding = decoding
        # DescribeQuorum does not wait: an operator needs the answer that there is no leader.
        self._waits = here.api_key != ApiKey.DESCRIBE_QUORUM

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Serve a request here, or forward it."""
        if self._active.is_here and (self._active.has_begun or not self._waits):
            return self._here.handle(context, request)
        return self._there(context, request)

    async def _there(self, context: RequestContext, request: Any) -> Any:
        here = self._here
        if not isinstance(here, Guarding):
            return await self._asked(context, request)
        asked_in = here.asked_in(context.api_version)
        kept, refused = await run_in_steps(_guarded(here, getattr(request, asked_in)))
        if not refused:
            return await self._asked(context, request)
        codec = response(self.api_key)
        if not kept:
            return codec.cls(**{here.answered_in: refused})
        setattr(request, asked_in, kept)
        answer = await self._asked(context, request)
        if type(answer) is list:
            body = b"".join(answer)
            answer = await decoded(codec, body, context.api_version, self._decoding)
        setattr(answer, here.answered_in, [*refused, *getattr(answer, here.answered_in)])
        return answer

    async def _asked(self, context: RequestContext, request: Any) -> Any:
        """Ask the active controller, with retries until the client's time is over."""
        allowed_ms = getattr(request, "timeout_ms", 0)
        end_ms = self._clock.monotonic_ms() + (
            allowed_ms if allowed_ms > 0 else DECISION_TIMEOUT_MS
        )
        await self._until_begun(end_ms)
        retry_ms, epoch = RETRY_MS, self._active.epoch
        while not self._active.is_here:
            left_ms = max(end_ms - self._clock.monotonic_ms(), 0)
            try:
                return await self._active.forward(
                    context, request, timeout_ms=left_ms, applied=self._making(request)
                )
            except KafkaError as error:
                may_wait = self._waits and isinstance(error, NotControllerError)
                if isinstance(error, Unanswered) and self.api_key not in _ONCE:
                    next_ms = min(self._clock.monotonic_ms() + NEXT_MS, end_ms)
                    may_wait = await self._until_begun(next_ms, above=error.epoch)
                if not may_wait or end_ms - self._clock.monotonic_ms() <= RETRY_MS:
                    refusable: Refusable = self._here
                    return refusable.refuse(context, request, error)
            before, epoch = epoch, self._active.epoch
            retry_ms = RETRY_MS if epoch != before else retry_ms
            left_ms = end_ms - self._clock.monotonic_ms()
            await pause(self._scheduler, max(min(retry_ms, left_ms - RETRY_MS), 0))
            retry_ms = min(2 * retry_ms, RETRY_MAX_MS)
            await self._until_begun(end_ms)
        answer = self._here.handle(context, request)
        return await answer if isawaitable(answer) else answer

    def _making(self, request: Any) -> Callable[[], Awaitable[None] | None]:
        """Returns a function that waits for the replicas of the request's new topics."""
        if self.api_key not in _MAKING:
            return lambda: None
        names = [topic.name for topic in request.topics]
        return lambda: self._settled(names)

    async def _until_begun(self, end_ms: int, *, above: int = -1) -> bool:
        """Wait for an active controller with an epoch above `above`; False: the time is over."""
        while self._waits and end_ms - self._clock.monotonic_ms() > RETRY_MS:
            if self._active.has_begun and self._active.epoch > above:
                return True
            await pause(self._scheduler, RETRY_MS)
        return False


def _guarded(here: Guarding, entries: list[Any]) -> Steps[tuple[list[Any], list[Any]]]:
    """Split into entries for the controller, and refusals of the others."""
    kept, refused, pace = [], [], Pace()
    for entry in entries:
        result = here.guarded(entry)
        if result is None:
            kept.append(entry)
        else:
            refused.append(result)
        if pace.is_step_over():
            yield
    return kept, refused
