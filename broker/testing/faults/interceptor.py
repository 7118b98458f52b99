"""Faults between the network, which has read a request, and its handler.

Routes are wrapped only while a fault of their API is in force; without one a request takes its
usual way. A delayed request is answered in turn: as in Kafka no later one on its connection is
served meanwhile.

Fetch sessions hide the topics of a request: an incremental request names none. So while a fault
needs them, the broker has no sessions, as Kafka's with a full session cache. A client gets
FETCH_SESSION_ID_NOT_FOUND once and names all its partitions from then on.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any, Final

from broker.network.registry import CloseConnection, Handler, OrderedAnswer, RequestContext
from broker.testing.faults.book import Decision, Entry, Facts, FaultBook
from broker.testing.faults.errors import ErrorAnswers
from broker.testing.faults.fetch_splice import splice
from broker.testing.faults.naming import NameOf, named_by
from broker.testing.faults.rule import Cut
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from runtime.ports import Ports

Serve = Callable[[RequestContext, memoryview, int], Any]

_SESSIONS_SINCE: Final = 7
_NO_SESSION: Final = (0, -1)


class Interceptor:
    """Applies the book's decisions to requests.

    Attributes:
        on_hit: Called when faults were hit.
    """

    def __init__(
        self, book: FaultBook, name_of: NameOf, ports: Ports, spared_listener: str = ""
    ) -> None:
        """Hit nothing yet.

        Args:
            book: The faults in force.
            name_of: Finds a topic by its id.
            ports: Clock, scheduler.
            spared_listener: Of the brokers alone; requests on it are never hit.
        """
        self._book, self._name_of, self._spared_listener = book, name_of, spared_listener
        self._clock, self._scheduler = ports.clock, ports.scheduler
        self._delayed: dict[asyncio.Future[None], Entry] = {}
        self.on_hit: Callable[[], None] = lambda: None

    def wrap(self, handler: Handler, serve: Serve) -> Serve:
        """Return the function for a route: `serve` itself where no fault concerns it."""
        if not self._book.in_force(handler.api_key):
            return serve

        def faulty(context: RequestContext, frame: memoryview, position: int) -> Any:
            if context.listener_name == self._spared_listener:
                return serve(context, frame, position)
            return _Faulty(self, serve, context).take(frame, position)

        return faulty

    def decide(self, facts: Facts) -> Decision | None:
        """Return the effect on a request; `on_hit` is called if there is one."""
        decision = self._book.decide(facts, self._clock.wall_ms())
        if decision is not None:
            self.on_hit()
        return decision

    def names_matter(self, api_key: int, client_id: str) -> bool:
        """True if a request must be decoded to find the faults that hit it."""
        return self._book.needs_names(api_key, client_id)

    def has_errors(self, api_key: int, client_id: str) -> bool:
        """True if a request may be answered with an error."""
        in_force = self._book.in_force(api_key, client_id)
        return any(one.fault.error is not None for one in in_force)

    async def wait(self, entry: Entry) -> None:
        """Wait for the delay of a fault, or until it is removed."""
        if entry.is_removed:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._delayed[done] = entry
        timer = self._scheduler.call_later(entry.fault.delay_ms, lambda: _settle(done))
        try:
            await done
        finally:
            timer.cancel()
            del self._delayed[done]

    def release(self) -> None:
        """End the delays of removed faults."""
        for done, entry in list(self._delayed.items()):
            if entry.is_removed:
                _settle(done)

    @property
    def name_of(self) -> NameOf:
        """Finds a topic by its id."""
        return self._name_of


class _Faulty:
    """One request that a fault may hit."""

    def __init__(self, faults: Interceptor, serve: Serve, context: RequestContext) -> None:
        self._faults, self._serve, self._context = faults, serve, context
        self._api_key, self._version = context.api_key, context.api_version

    def take(self, frame: memoryview, position: int) -> Any:
        """Serve the request, or apply its faults; the caller reuses the frame afterwards."""
        faults, named, request = self._faults, None, None
        client_id = self._context.client_id
        names_matter = faults.names_matter(self._api_key, client_id)
        body = bytearray(frame[position:])
        if names_matter or faults.has_errors(self._api_key, client_id):
            message = codec.request(self._api_key)
            request, _ = message.decode(body, self._version, 0)
            if self._api_key == ApiKey.FETCH and self._version >= _SESSIONS_SINCE:
                if request.session_epoch > 0:
                    return self._ask_for_all()
                if request.session_epoch == 0:
                    request.session_id, request.session_epoch = _NO_SESSION
                    body = bytearray(message.encode(request, self._version))
            if names_matter:
                named = named_by(self._api_key, self._version, request, faults.name_of)
        facts = Facts(self._api_key, self._version, client_id, named)
        decision = faults.decide(facts)
        if decision is None:
            return self._serve(self._context, memoryview(body), 0)
        if decision.delays:
            return OrderedAnswer(partial(self._delayed, decision, request, body))
        return self._strike(decision, request, body)

    def _ask_for_all(self) -> list[object]:
        message = codec.response(ApiKey.FETCH)
        code = int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return message.encode_parts(message.cls(error_code=code), self._version)

    async def _delayed(
        self, decision: Decision, request: Any, body: bytearray, in_order: OrderedAnswer
    ) -> Any:
        for entry in decision.delays:
            await self._faults.wait(entry)
        in_order.continues = True
        return await _awaited(self._strike(decision, request, body))

    def _strike(self, decision: Decision, request: Any, body: bytearray) -> Any:
        """Cut, fail or serve, now."""
        cut = decision.cut
        if cut is not None and cut.fault.cut is Cut.BEFORE_SERVING:
            raise CloseConnection(f"fault {cut.id}: cut before the request is served")
        if decision.errors and cut is None:
            return self._fail(decision.errors, request)
        answer = self._serve(self._context, memoryview(body), 0)
        if cut is None:
            return answer
        return _then(answer, lambda _: _lose(cut))

    def _fail(self, errors: tuple[Entry, ...], request: Any) -> Any:
        """Answer the part that errors stand for, and serve the rest."""
        answers = ErrorAnswers(self._api_key, self._version, self._faults.name_of)
        split = answers.split(request, errors)
        if split.rest is None:
            return self._encoded(split.answer, errors, request)
        rest, is_fetch = split.rest, self._api_key == ApiKey.FETCH
        if is_fetch:
            rest.max_wait_ms = 0  # a partition with an error is answered at once
        body = bytearray(codec.request(self._api_key).encode(rest, self._version))
        answer = self._serve(self._context, memoryview(body), 0)

        def join(served: Any) -> Any:
            if served is None:
                raise _no_answer(errors)
            if is_fetch:
                return splice(served, split.answer, self._version)
            return answers.join(self._decoded(served), errors, split.answer)

        return _then(answer, join)

    def _decoded(self, served: Any) -> Any:
        if type(served) is not list:
            return served
        body = b"".join(served)
        return codec.response(self._api_key).decode(body, self._version, 0)[0]

    def _encoded(self, answer: Any, errors: tuple[Entry, ...], request: Any) -> list[object]:
        if self._api_key == ApiKey.PRODUCE and request.acks == 0:
            raise _no_answer(errors)
        version = self._version
        if self._api_key == ApiKey.API_VERSIONS and answer.error_code == int(
            ErrorCode.UNSUPPORTED_VERSION
        ):
            version = 0  # as in Kafka: a client that asked for too high a version can read it
        return codec.response(self._api_key).encode_parts(answer, version)


def _no_answer(errors: tuple[Entry, ...]) -> CloseConnection:
    """End the connection of a producer with acks=0 for an error, as Kafka does."""
    return CloseConnection(f"fault {errors[0].id}: an error of a request that has no answer")


def _lose(cut: Entry) -> Any:
    raise CloseConnection(f"fault {cut.id}: cut after the request was served")


def _settle(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


async def _awaited(answer: Any) -> Any:
    """Await an answer in any of the forms that handlers return."""
    if type(answer) is OrderedAnswer:
        return await answer.serve(answer)
    return await answer if isawaitable(answer) else answer


def _then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """Change an answer, at once or when it is ready."""
    if type(answer) is not OrderedAnswer and not isawaitable(answer):
        return change(answer)

    async def later(served: Any) -> Any:
        return change(await served)

    if type(answer) is not OrderedAnswer:
        return OrderedAnswer(lambda _: later(answer))
    serve = answer.serve
    answer.serve = lambda in_order: later(serve(in_order))
    return answer
