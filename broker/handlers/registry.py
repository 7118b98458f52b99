"""Which APIs this listener serves, and how the network finds their code.

A handler is data: an api key, a version range and a function. ApiVersions is derived from the
table, so an API that has no handler is absent from the answer and its requests close the
connection: nothing is ever a stub.

Two forms of a handler's function:

* `handle(context, request)` gets the decoded request struct. It returns the response struct, an
  awaitable of it, or None where the protocol has no answer (Produce with acks=0).
* `raw(context, frame, offset)` gets the frame's bytes and the position of the body. It returns the
  parts of the response body, a future of them, or None. For the two hot APIs only.

The frame's bytes are recycled as soon as the function has returned (a coroutine has not even begun
to run then), so nobody may keep a view of them. Records of a Produce request are such views; all
other values are copies.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class RequestContext:
    """Facts about one request that are not in its body.

    `received_ms` is the wall clock at the wake-up that read the request's last byte. `client_id` is
    empty where the client sent null. It comes from outside: escape it before it is logged.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    listener_name: str
    peer: tuple[str, int]
    received_ms: int


class CloseConnection(Exception):
    """The only right answer is none: the connection closes, `reason` goes into its log line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


HandleFn = Callable[[RequestContext, Any], Any]
"""Any: request structs are made by the codec at run time; each handler knows its own."""

RawFn = Callable[[RequestContext, memoryview, int], Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """One API as served here.

    Attributes:
        api_key: Kafka's number of the API.
        min_version: lowest version that is served (inclusive).
        max_version: highest version that is served (inclusive).
        handle: see the module's docstring.
        advertised_min_version: lowest version named by ApiVersions where it differs; Produce names
            0 (librdkafka before 2.11 sends no compression otherwise) and serves 3 on.
        raw: takes precedence over `handle` where it is given.
    """

    api_key: int
    min_version: int
    max_version: int
    handle: HandleFn
    advertised_min_version: int | None = None
    raw: RawFn | None = None

    def serves(self, version: int) -> bool:
        """Tell whether a request of this version is answered."""
        return self.min_version <= version <= self.max_version


class HandlerTable:
    """All handlers of one kind of listener, by api key."""

    def __init__(self, handlers: Iterable[Handler] = ()) -> None:
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
