"""The APIs of a listener and the handlers that serve them.

A handler is an api key, a range of versions, and a method that serves a request. The method takes
the decoded request (`DecodedHandler`) or the frame's bytes (`RawHandler`). The answer to
ApiVersions is derived from the table. So an API without a handler is absent from it, and requests
of that API close the connection.

The frame's bytes are recycled as soon as the method has returned; a coroutine has not begun to run
by then. So a handler must keep no view of them. Records of a decoded Produce request are such
views; all other values are copies.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from broker.network.authentication import NO_AUTHENTICATION, Session
from kafka_protocol.errors import TidemarkError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions


@dataclass(slots=True)
class RequestContext:
    """Facts about one request that are not in its body.

    Attributes:
        client_id: Empty where the client sent null. It is not authenticated: escape it in logs, and
            grant no right by it; `session` has the principal.
        received_ms: Wall clock of the wake-up that read the request's last byte.
        is_forwarded: A broker sent it in an Envelope, for a client.
        received_ns: Monotonic time of the same wake-up.
        begun_ns: Monotonic begin of the time slice that serves it.
        returned_ns: Monotonic time when the handler returned a future; 0: it returned an answer.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    listener_name: str
    peer: tuple[str, int]
    received_ms: int
    session: Session = NO_AUTHENTICATION
    is_forwarded: bool = False
    received_ns: int = 0
    begun_ns: int = 0
    returned_ns: int = 0


class CloseConnection(TidemarkError):
    """Closes the connection without an answer; `reason` goes into the log line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ApiHandler(ABC):
    """One API as served here; each handler is a `DecodedHandler` or a `RawHandler`.

    Attributes:
        api_key: Kafka's number of the API.
        versions: Served versions, both ends inclusive.
        advertised_min_version: Lowest version in the answer to ApiVersions if it differs. Produce
            names 0 and serves from 3 on: librdkafka before 2.11 sends no compression otherwise.
    """

    api_key: ApiKey
    versions: Versions
    advertised_min_version: int | None = None


class DecodedHandler(ApiHandler):
    """A handler that takes decoded requests and returns structs.

    While an awaitable answer is pending, later requests of the same connection are not served, as
    in Kafka; except where `HandlerTable.may_overtake` is set.

    Attributes:
        waits_for_others: The answer depends on requests of other clients. These may be queued for
            the decoding memory. So such a large request does not count against it while it waits.
    """

    waits_for_others = False

    @abstractmethod
    def handle(self, context: RequestContext, request: Any) -> Any:
        """Serve one request.

        Args:
            context: Facts from outside the body.
            request: The decoded struct. Any: the codec makes these classes at run time, and each
                handler knows its own.

        Returns:
            The response struct, or an awaitable of it.

        Raises:
            CloseConnection: End the connection without an answer.
        """


class RawHandler(ApiHandler):
    """A handler that takes the frame and returns bytes: for Produce and Fetch.

    Attributes:
        is_change: Later requests of the connection must see the effect of this one. While it has no
            answer, only requests of the same API are served.
    """

    is_change = False

    @abstractmethod
    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        """Serve one request.

        Args:
            context: Facts from outside the body.
            frame: Header and body; recycled after the call.
            offset: Where the body begins.

        Returns:
            The parts of the response body, an awaitable of them, `OrderedAnswer`, or None where the
            protocol has no answer (Produce with acks=0).

        Raises:
            CloseConnection: End the connection without an answer.
            MalformedMessageError: The body cannot be decoded.
        """


@dataclass(slots=True)
class OrderedAnswer:
    """An answer that must precede everything behind its request on the connection.

    The connection serves nothing more until it is ready. A frame longer than `KEPT_FRAME_BYTES` is
    not recycled until then; see `own_body`.

    Attributes:
        serve: Makes the answer, called with this object; cancelled if the client disconnects.
        elements: Upper bound of the elements it decodes to, by its length; `serve` is called when
            there is memory for them.
        count: Counts the elements exactly, on a thread, once that memory is taken; the difference
            is given back.
        continues: Set by the handler: from now on it is not cancelled.
        let_go: Called by a handler that has dropped most of the decoded request and waits for other
            requests.
    """

    serve: "Callable[[OrderedAnswer], Awaitable[Any]]"
    elements: int = 0
    count: Callable[[], int] | None = None
    continues: bool = False
    let_go: Callable[[], None] = lambda: None


KEPT_FRAME_BYTES: Final = 1024 * 1024
"""A longer frame has a buffer of its own."""


def own_body(frame: memoryview, offset: int) -> memoryview:
    """The body of a request with an `OrderedAnswer`, writable until the answer is there.

    A short body is copied out of the shared buffer.
    """
    body = frame[offset:]
    return body if len(frame) > KEPT_FRAME_BYTES else memoryview(bytearray(body))


Handler = DecodedHandler | RawHandler


class HandlerTable:
    """All handlers of one kind of listener, by api key.

    Attributes:
        may_overtake: Later requests of a connection are served while earlier ones wait. Connections
            among controllers and brokers need it. A Vote must not wait for a Fetch without records,
            and a heartbeat must not wait for the creation of many topics.
    """

    def __init__(self, handlers: Iterable[Handler] = (), *, may_overtake: bool = False) -> None:
        self.may_overtake = may_overtake
        self._by_key: dict[int, Handler] = {}
        for handler in handlers:
            self.add(handler)

    def add(self, handler: Handler) -> None:
        """Add a handler; its api key must be new."""
        assert handler.api_key not in self._by_key, f"two handlers for api key {handler.api_key}"
        self._by_key[handler.api_key] = handler

    def get(self, api_key: int) -> Handler | None:
        """Return the handler of an api key; None: the API is not served here."""
        return self._by_key.get(api_key)

    def __iter__(self) -> Iterator[Handler]:
        return iter(sorted(self._by_key.values(), key=lambda handler: handler.api_key))

    def __len__(self) -> int:
        return len(self._by_key)
