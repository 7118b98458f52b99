"""Which APIs this listener serves, and how the network finds their code.

A handler is an api key, a range of versions, and a method that serves a request: with the request
decoded (`DecodedHandler`), or with the frame's bytes (`RawHandler`). ApiVersions is derived from
the table, so an API that has no handler is absent from the answer and its requests close the
connection.

The frame's bytes are recycled as soon as the method has returned (a coroutine has not even begun
to run then), so nobody may keep a view of them. Records of a Produce request are such views; all
other values are copies.
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

    `received_ms` is the wall clock at the wake-up that read the request's last byte. `client_id` is
    empty where the client sent null. It comes from outside: escape it before it is logged, and let
    no right follow from it: who a peer is tells its `session`. What `is_forwarded` came in an
    Envelope: a client asked it of a broker. `received_ns`, `begun_ns` and `returned_ns` are
    monotonic: the wake-up that read its last byte, the call of its handler, and the return of that
    where the answer comes later, else 0.
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
    """The only right answer is none: the connection closes, `reason` goes into its log line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ApiHandler(ABC):
    """One API as served here; an API's handler is one of the two classes below.

    Attributes:
        api_key: Kafka's number of the API.
        versions: the versions that are served, both ends inclusive.
        advertised_min_version: lowest version named by ApiVersions where it differs; Produce names
            0 (librdkafka before 2.11 sends no compression otherwise) and serves 3 on.
    """

    api_key: ApiKey
    versions: Versions
    advertised_min_version: int | None = None


class DecodedHandler(ApiHandler):
    """Gets requests decoded, and returns structs.

    Where the answer is an awaitable, nothing behind the request on its connection is served before
    it is there, as in Kafka; but see `HandlerTable.may_overtake`.

    Attributes:
        waits_for_others: the answer comes after requests of other clients. So one that decodes to
            much is not counted while it waits: those that it waits for may wait in the queue
            behind.
    """

    waits_for_others = False

    @abstractmethod
    def handle(self, context: RequestContext, request: Any) -> Any:
        """Serve one request.

        Args:
            context: facts from outside the body.
            request: the decoded struct. Any: the codec makes these classes at run time, and each
                handler knows its own.

        Returns:
            The response struct, or an awaitable of it.

        Raises:
            CloseConnection: there is no answer but the end of the connection.
        """


class RawHandler(ApiHandler):
    """Gets the frame and returns bytes: for the two hot APIs.

    Attributes:
        is_change: what a request of it changes must be there for those behind it on the connection.
            Only further ones of the same API are served while it has no answer.
    """

    is_change = False

    @abstractmethod
    def raw(self, context: RequestContext, frame: memoryview, offset: int) -> Any:
        """Serve one request.

        Args:
            context: facts from outside the body.
            frame: header and body; recycled after the call.
            offset: where the body begins.

        Returns:
            The parts of the response body, an awaitable of them, `OrderedAnswer`, or None where the
            protocol has no answer (Produce with acks=0).

        Raises:
            CloseConnection: there is no answer but the end of the connection.
            MalformedMessageError: the body is no such request.
        """


@dataclass(slots=True)
class OrderedAnswer:
    """An answer that nothing behind its request on the connection may overtake.

    The connection serves nothing more until it is there. A frame longer than `KEPT_FRAME_BYTES` is
    not recycled, see `own_body`.

    Attributes:
        serve: makes the answer, given this; where the client hangs up that is cancelled.
        elements: how many the request may decode to by its length; `serve` is called when there is
            memory for them.
        count: counts them, on a thread, when there is; what they are fewer is given back then.
        continues: it is not cancelled any more.
        let_go: the handler calls it when it keeps little of what it decoded and waits for others.
    """

    serve: "Callable[[OrderedAnswer], Awaitable[Any]]"
    elements: int = 0
    count: Callable[[], int] | None = None
    continues: bool = False
    let_go: Callable[[], None] = lambda: None


KEPT_FRAME_BYTES: Final = 1024 * 1024
"""A longer frame has memory of its own."""


def own_body(frame: memoryview, offset: int) -> memoryview:
    """The body of a request that is answered by `OrderedAnswer`, for as long as it is served.

    Writable.
    """
    body = frame[offset:]
    return body if len(frame) > KEPT_FRAME_BYTES else memoryview(bytearray(body))


Handler = DecodedHandler | RawHandler


class HandlerTable:
    """All handlers of one kind of listener, by api key.

    Attributes:
        may_overtake: requests are served although earlier ones of their connection wait. Among
            controllers and brokers a connection carries what must not wait for each other: a Vote
            behind a Fetch that waits for news, a heartbeat behind the creation of many topics.
    """

    def __init__(self, handlers: Iterable[Handler] = (), *, may_overtake: bool = False) -> None:
        self.may_overtake = may_overtake
        self._by_key: dict[int, Handler] = {}
        for handler in handlers:
            self.add(handler)

    def add(self, handler: Handler) -> None:
        """Add a handler. A second one for the same key is a mistake of ours."""
        assert handler.api_key not in self._by_key, f"two handlers for api key {handler.api_key}"
        self._by_key[handler.api_key] = handler

    def get(self, api_key: int) -> Handler | None:
        """Return the handler of an api key, None where it is not served."""
        return self._by_key.get(api_key)

    def __iter__(self) -> Iterator[Handler]:
        return iter(sorted(self._by_key.values(), key=lambda handler: handler.api_key))

    def __len__(self) -> int:
        return len(self._by_key)
