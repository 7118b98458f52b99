"""From a request frame to the parts of its answer.

Decides whether a frame can be served (api key, version, header), runs its handler, and puts size
and header before the answer. A frame that cannot be served ends the connection, as in Kafka; only
ApiVersions has an answer for an unknown version (KIP-511).
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable, Coroutine
from functools import partial
from inspect import isawaitable
from struct import Struct, error
from typing import Any

from broker.network.authentication import NO_AUTHENTICATION, Session
from broker.network.registry import (
    CloseConnection,
    Handler,
    HandlerTable,
    OrderedAnswer,
    RawHandler,
    RequestContext,
    own_body,
)
from broker.network.request_times import RequestTimes
from broker.network.wide_requests import WideRequests
from kafka_protocol.errors import ErrorCode, MalformedMessageError
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.framing import RequestHeader, read_request_header, response_parts
from runtime.clock import Clock
from runtime.executors import Executors, Pool
from runtime.incidents import Incident
from runtime.log_context import limited
from runtime.metrics import CounterChild, Registry

log = logging.getLogger(__name__)

Sending = tuple[int, int, RequestTimes, int]
"""Accounting of an answer in the send queue.

Its bytes, the time it was ready (monotonic, ns), the metric that records the send, and the number
of answers it stands for.
"""

Framed = tuple[list[object], int]
"""A whole response frame.

Its parts (bytes-likes and file regions), size prefix first, and their total bytes.
"""

Answer = tuple[list[object], int, Sending]
"""A framed answer and its accounting."""

_FIXED = Struct(">hhih")
_unpack_fixed = _FIXED.unpack_from


class OrderedFuture(Future[Answer | None]):
    """An answer that later requests of the connection wait for.

    Attributes:
        passing: Api key, in wire format, of the requests that need not wait; None: all wait.
        work: Makes the answer; the request's bytes are in use until it is done.
    """

    work: Future[Any]

    def __init__(self, loop: asyncio.AbstractEventLoop, passing: bytes | None = None) -> None:
        super().__init__(loop=loop)
        self.passing = passing


class Peer:
    """Facts about a connection that dispatch needs; caches its client id between requests."""

    __slots__ = ("address", "client_id", "client_id_bytes", "listener_name", "session")

    def __init__(
        self,
        listener_name: str,
        address: tuple[str, int],
        session: Session = NO_AUTHENTICATION,
    ) -> None:
        self.listener_name = listener_name
        self.address = address
        self.session = session
        self.client_id_bytes = b""
        self.client_id = ""


Serve = Callable[[RequestContext, memoryview, int], Any]
"""Serves the request whose body begins at a position of a frame."""

Wrap = Callable[[Handler, Serve], Serve]
"""Returns a replacement for the function that serves a handler, or that function itself."""

Outcome = Callable[[asyncio.AbstractEventLoop], Future[Answer | None]]

DECODED_AT_ONCE_BYTES = 64 * 1024
"""A longer request is decoded, and its answer encoded, by a thread.

20,000 partitions take tens of milliseconds. A connection has one such request at a time, which
bounds the cost of a client.
"""


def decoders(executors: Executors) -> Pool:
    """The pool of one thread that decodes long requests."""
    return executors.pool("decoding", 1)


async def decoded(
    message: codec.Message,
    frame: bytes | memoryview,
    version: int,
    decoding: Pool,
    position: int = 0,
) -> Any:
    """Decode the message at a position of a frame; a long one is decoded by a thread."""
    if len(frame) > DECODED_AT_ONCE_BYTES:
        value, _ = await decoding.run(message.decode, frame, version, position)
    else:
        value, _ = message.decode(frame, version, position)
    return value


def _serving(handler: Handler, decoding: Pool) -> Serve:
    if isinstance(handler, RawHandler):
        return handler.raw
    message, handle = codec.request(handler.api_key), handler.handle
    decode = message.decode
    encode = codec.response(handler.api_key).encode_parts

    async def serve_long(context: RequestContext, body: memoryview, in_order: OrderedAnswer) -> Any:
        request, _ = await decoding.run(decode, body, context.api_version, 0)
        answer = handle(context, request)
        if isawaitable(answer):
            if handler.waits_for_others:
                in_order.let_go()
            answer = await answer
        if answer is None or type(answer) is list:
            return answer
        return await decoding.run(encode, answer, context.api_version)

    def serve(context: RequestContext, frame: memoryview, position: int) -> Any:
        size_bytes = len(frame) - position
        if size_bytes > DECODED_AT_ONCE_BYTES:
            elements = message.elements_max(size_bytes, context.api_version)
            return OrderedAnswer(partial(serve_long, context, own_body(frame, position)), elements)
        request, _ = decode(frame, context.api_version, position)
        return handle(context, request)

    return serve


class _Route:
    """Lookups for one (api key, version), done once."""

    __slots__ = (
        "encode_parts",
        "flexible",
        "outcome",
        "requests",
        "response_header",
        "serve",
        "times",
    )

    def __init__(
        self,
        handler: Handler,
        version: int,
        requests: CounterChild,
        times: RequestTimes,
        decoding: Pool,
        *,
        may_overtake: bool,
    ) -> None:
        request_header, self.response_header = header_versions(handler.api_key, version)
        self.flexible = request_header == 2
        self.serve = _serving(handler, decoding)
        self.encode_parts: Callable[..., Any] = codec.response(handler.api_key).encode_parts
        self.requests, self.times = requests, times
        self.outcome = _outcome_of(handler, may_overtake=may_overtake)


def _free_outcome(loop: asyncio.AbstractEventLoop) -> Future[Answer | None]:
    return loop.create_future()


def _outcome_of(handler: Handler, *, may_overtake: bool) -> Outcome:
    """Choose the kind of future for an answer that is not ready."""
    if not isinstance(handler, RawHandler):
        return _free_outcome if may_overtake else OrderedFuture
    if not handler.is_change:
        return _free_outcome
    passing = int(handler.api_key).to_bytes(2, "big")
    return lambda loop: OrderedFuture(loop, passing)


class Dispatcher:
    """Serves the frames of one kind of listener."""

    def __init__(
        self,
        handlers: HandlerTable,
        metrics: Registry,
        decoding: Pool,
        wide: WideRequests,
        clock: Clock,
    ) -> None:
        self._handlers, self._decoding, self._wide = handlers, decoding, wide
        self._metrics, self._now_ns = metrics, clock.monotonic_ns
        self._times: dict[int, RequestTimes] = {}
        self._routes: dict[tuple[int, int], _Route] = {}
        self._requests = metrics.counter(
            "kafka_network_RequestMetrics_RequestsPerSec_total",
            "Requests received, by API and version.",
            ("request", "version"),
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wrap: Wrap | None = None

    def wrap_routes(self, wrap: Wrap | None) -> None:
        """Have `wrap` replace the serving functions from now on; None restores them.

        A route is wrapped at its next use, once for all its requests. Call this again when `wrap`
        would return something else. Unwrapped requests pay nothing.
        """
        self._wrap = wrap
        self._routes.clear()

    def dispatch(
        self, peer: Peer, frame: memoryview, received_ms: int, received_ns: int, turn_ns: int
    ) -> Answer | Future[Answer | None] | None:
        """Serve one frame.

        Args:
            peer: Origin of the frame.
            frame: Header and body without the size prefix; recycled after the call.
            received_ms: Wall clock.
            received_ns: Monotonic clock.
            turn_ns: Begin of the connection's time slice, monotonic clock.

        Returns:
            The response frame, a future of it, or None where there is no response. The exception of
            a future may be CloseConnection.

        Raises:
            CloseConnection: The connection must end.
        """
        try:
            api_key, version, correlation_id, client_id_size = _unpack_fixed(frame, 0)
        except error:
            raise CloseConnection("request header is cut short") from None
        route = self._routes.get((api_key, version))
        if route is None:
            route = self._find_route(api_key, version)
            if route is None:
                return self._unsupported_api_versions(frame)
        position = 10
        if client_id_size > 0:
            position += client_id_size
            known = peer.client_id_bytes
            if len(known) != client_id_size or frame[10:position] != known:
                self._remember_client_id(peer, frame, position)
        elif peer.client_id_bytes:
            peer.client_id_bytes, peer.client_id = b"", ""
        if route.flexible:
            if position < len(frame) and frame[position] == 0:
                position += 1
            else:
                position = _read_header(frame).body_offset
        context = RequestContext(
            api_key,
            version,
            correlation_id,
            peer.client_id,
            peer.listener_name,
            peer.address,
            received_ms,
            peer.session,
            False,
            received_ns,
            turn_ns,
        )
        route.requests.value += 1
        answer = self._serve(route, context, frame, position)
        now_ns = self._now_ns()
        if isinstance(answer, Future):
            context.returned_ns = now_ns
            return answer
        times = route.times.answered(context, now_ns)
        if answer is None:
            return None
        parts, size_bytes = answer
        return parts, size_bytes, (size_bytes, now_ns, route.times, times)

    def _serve(
        self, route: _Route, context: RequestContext, frame: memoryview, position: int
    ) -> Framed | Future[Answer | None] | None:
        try:
            answer = route.serve(context, frame, position)
            if type(answer) is list:
                return response_parts(context.correlation_id, route.response_header, answer)
            if isinstance(answer, Future):
                return self._later(context, route, answer, route.outcome)
            if isinstance(answer, Coroutine):
                return self._later(context, route, self._run(answer), route.outcome)
            if type(answer) is OrderedAnswer:
                task = self._run(self._wide.serve(context.peer[0], answer))
                return self._later(context, route, task, OrderedFuture, answer)
            return self._finish(context, route, answer)
        except MalformedMessageError as cause:
            raise _malformed(context, cause) from None
        except CloseConnection:
            raise
        except Exception as cause:
            raise self._failed(context, cause) from cause

    def _run(self, answer: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(answer)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- answers

    def _finish(self, context: RequestContext, route: _Route, answer: Any) -> Framed | None:
        if answer is None:
            return None
        body = answer if type(answer) is list else route.encode_parts(answer, context.api_version)
        return response_parts(context.correlation_id, route.response_header, body)

    def _later(
        self,
        context: RequestContext,
        route: _Route,
        answer: Future[Any],
        make_outcome: Outcome,
        in_order: OrderedAnswer | None = None,
    ) -> Future[Answer | None]:
        outcome = make_outcome(answer.get_loop())
        if type(outcome) is OrderedFuture:
            outcome.work = answer

        def done(future: Future[Any]) -> None:
            framed, cause = self._settled(context, route, future, is_wanted=not outcome.done())
            now_ns = self._now_ns()
            times = route.times.answered(context, now_ns)
            if outcome.done():
                return
            if cause is not None:
                outcome.set_exception(cause)
            elif framed is None:
                outcome.set_result(None)
            else:
                parts, size_bytes = framed
                sending = size_bytes, now_ns, route.times, times
                outcome.set_result((parts, size_bytes, sending))

        def abandoned(future: Future[Answer | None]) -> None:
            if future.cancelled() and not (in_order is not None and in_order.continues):
                answer.cancel()

        answer.add_done_callback(done)
        outcome.add_done_callback(abandoned)
        return outcome

    def _settled(
        self, context: RequestContext, route: _Route, future: Future[Any], *, is_wanted: bool
    ) -> tuple[Framed | None, CloseConnection | None]:
        """Return the framed answer of a finished handler, or the reason to close the connection."""
        if future.cancelled():
            return None, CloseConnection("the broker is shutting down")
        cause = future.exception()  # retrieved always: asyncio logs an exception that was not
        if not is_wanted:
            return None, None
        if cause is None:
            try:
                return self._finish(context, route, future.result()), None
            except Exception as failure:  # noqa: BLE001 - reported through the outcome
                return None, self._failed(context, failure)
        if isinstance(cause, CloseConnection):
            return None, cause
        if isinstance(cause, MalformedMessageError):
            return None, _malformed(context, cause)
        return None, self._failed(context, cause)

    def _failed(self, context: RequestContext, cause: BaseException) -> CloseConnection:
        name = ApiKey(context.api_key).name
        line = Incident.DEFECT.line(
            what=f"request failed: api={name} version={context.api_version}"
        )
        limited.error(log, line, (name, type(cause)), exc_info=cause)
        return CloseConnection(f"{name} request failed inside the broker")

    # -- requests that cannot be served

    def _find_route(self, api_key: int, version: int) -> _Route | None:
        handler = self._handlers.get(api_key)
        if handler is None:
            raise CloseConnection(f"api key {api_key} is not served here")
        if version not in handler.versions:
            if api_key == ApiKey.API_VERSIONS and version > handler.versions.last:
                return None
            raise CloseConnection(f"version {version} of api key {api_key} is not served here")
        requests = self._requests.labels(_metric_name(api_key), str(version))
        may_overtake = self._handlers.may_overtake
        times = self._times_of(api_key)
        route = _Route(handler, version, requests, times, self._decoding, may_overtake=may_overtake)
        if self._wrap is not None:
            route.serve = self._wrap(handler, route.serve)
        self._routes[api_key, version] = route
        return route

    def _times_of(self, api_key: int) -> RequestTimes:
        times = self._times.get(api_key)
        if times is None:
            times = self._times[api_key] = RequestTimes(self._metrics, _metric_name(api_key))
        return times

    def _unsupported_api_versions(self, frame: memoryview) -> Answer:
        """Answer ApiVersions of an unknown version in the shape of version 0 (KIP-511)."""
        header = _read_header(frame)
        api_key = ApiKey.API_VERSIONS
        handler = self._handlers.get(api_key)
        assert handler is not None
        message = codec.response(api_key)
        body = message.cls(
            error_code=int(ErrorCode.UNSUPPORTED_VERSION),
            api_keys=[
                message.cls.ApiKeys(
                    api_key=int(api_key),
                    min_version=handler.versions.first,
                    max_version=handler.versions.last,
                )
            ],
        )
        parts, size_bytes = response_parts(header.correlation_id, 0, [message.encode(body, 0)])
        return parts, size_bytes, (size_bytes, self._now_ns(), self._times_of(api_key), 0)

    def _remember_client_id(self, peer: Peer, frame: memoryview, end: int) -> None:
        peer.client_id = _read_header(frame).client_id or ""
        peer.client_id_bytes = bytes(frame[10:end])


def _read_header(frame: memoryview) -> RequestHeader:
    try:
        return read_request_header(frame)
    except MalformedMessageError as cause:
        raise CloseConnection(f"malformed request header: {cause}") from None


def _malformed(context: RequestContext, cause: MalformedMessageError) -> CloseConnection:
    name = ApiKey(context.api_key).name
    return CloseConnection(f"malformed {name} request version {context.api_version}: {cause}")


def _metric_name(api_key: int) -> str:
    """Kafka's name of an API in metrics, such as ListOffsets."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))
