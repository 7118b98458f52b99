"""The connection to one node, on an event loop: opened when needed, and again after it has ended.

    connection = Connection(("127.0.0.1", 9093), settings, ports)
    answer = await connection.request(ApiKey.METADATA, question, timeout_ms=5_000)

Requests are pipelined and answered in their order. No request is repeated here: only its caller can
decide whether it may be carried out twice. Everything runs on the event loop's thread, except the
decoding of long answers.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from kafka_client.exchange import AT_ONCE_BYTES, ConnectionSettings, Exchange
from kafka_client.requests import Answer, Call, ClientError, NoAnswerError, NotSentError, encoder
from kafka_client.transport import Address, LoopNetwork, Network, Transport
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.schema import Versions
from runtime.ports import Ports
from runtime.scheduler import Timer

POOL: Final = "kafka-client"
THREADS: Final = 2
NAMES_POOL: Final = "kafka-client-names"
NAMES_THREADS: Final = 4
"""More than one, because lookups of names without an answer block threads for seconds."""
_DECODING_MS: Final = 100
"""Least time to decode an answer that arrived at the last moment, or while the loop was held."""
KEPT: Final = 32
"""Addresses change over time; above this number the unused ones are dropped."""


class Connection:
    """The connection to one node: opened when needed, and again after it has ended."""

    def __init__(
        self,
        address: Address,
        settings: ConnectionSettings,
        ports: Ports,
        network: Network | None = None,
    ) -> None:
        """Nothing is opened before the first request.

        Args:
            address: Host and port.
            settings: Of all connections of this purpose.
            ports: Clock, timers, and two pools: `kafka-client` decodes long answers,
                `kafka-client-names` looks names up.
            network: None: TCP.
        """
        self.address = address
        self._settings, self._ports = settings, ports
        self._pool = ports.executors.pool(POOL, THREADS)
        self._network = network or LoopNetwork(
            ports.executors.pool(NAMES_POOL, NAMES_THREADS), ports.isolation
        )
        self._open: _Open | None = None
        self._is_closed = False

    @property
    def is_in_use(self) -> bool:
        """True if there is a connection, or an attempt to open one."""
        return self._open is not None

    @property
    def versions(self) -> Mapping[int, Versions]:
        """The versions that the node serves; empty while no connection has asked it."""
        if self._open is None or not self._open.exchange.is_ready:
            return {}
        return self._open.exchange.versions

    @property
    def held_bytes(self) -> int:
        """Bytes of answers that are being received or not released."""
        return 0 if self._open is None else self._open.exchange.held_bytes

    def send(self, call: Call) -> None:
        """Send a request as soon as possible; `call.done` may be called at once."""
        if self._is_closed:
            call.fail(NotSentError, ConnectionError("closed"))
            return
        if self._open is None:
            self._open = _Open(self)
        self._open.send(call)

    async def request(
        self,
        api_key: ApiKey,
        body: Any,
        *,
        versions: Versions | int | None = None,
        read: Callable[[Answer], Any] | None = Answer.decode,
        timeout_ms: int,
    ) -> Any:
        """Send a request and return its decoded answer; arguments as of `Call`.

        With `read=None` it returns the `Answer` as received, whose memory is the caller's until
        `release`. Further answers are not read while too much is held (`held_bytes_max`).

        Raises:
            NotSentError: The request was not sent.
            NoAnswerError: It was sent, and there is no answer.
        """
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(result: Any) -> None:
            if not ended.cancelled():
                ended.set_result(result)
            elif isinstance(result, Answer):
                result.release()

        encode = encoder(api_key, body)
        call = Call(api_key, encode, done, versions=versions, read=read, timeout_ms=timeout_ms)
        self.send(call)
        try:
            result = await ended
        except asyncio.CancelledError:
            call.cancel()
            if not ended.cancelled() and isinstance(ended.result(), Answer):
                ended.result().release()  # it arrived without a receiver
            raise
        if isinstance(result, ClientError):
            raise result
        return result

    def close(self) -> None:
        """Close, permanently: requests end without an answer, later ones at once."""
        self._is_closed = True
        if self._open is not None:
            self._open.end(ConnectionError("closed"))

    def _ended(self, one: "_Open") -> None:
        if one is self._open:
            self._open = None

    def _answered(self, call: Call, answer: Answer) -> None:
        if call.is_raw:
            call.finish(answer)
        elif len(answer.frame) <= AT_ONCE_BYTES:
            result = call.result_of(answer)
            answer.release()
            call.finish(result)
        else:
            self._read_beside(call, answer)

    def _read_beside(self, call: Call, answer: Answer) -> None:
        def back(done: "Future[Any]") -> None:
            timer.cancel()
            answer.release()
            call.finish(_no_thread() if done.cancelled() else done.result())

        def too_late() -> None:
            call.fail(NoAnswerError, TimeoutError(f"not decoded within {call.timeout_ms} ms"))
            reading.cancel()

        try:
            reading = self._pool.submit(call.result_of, answer)
        except RuntimeError:
            answer.release()
            call.finish(_no_thread())
            return
        left_ms = max(call.ends_ms - self._ports.clock.monotonic_ms(), _DECODING_MS)
        timer = self._ports.scheduler.call_later(left_ms, too_late)
        reading.add_done_callback(lambda done: self._ports.scheduler.call_soon(lambda: back(done)))


def _no_thread() -> NoAnswerError:
    return NoAnswerError("the threads that decode answers have ended")


class _Open:
    """One opened connection, from the attempt to open it to its end; ignores later events."""

    def __init__(self, owner: Connection) -> None:
        settings, self._ports = owner._settings, owner._ports
        self.exchange = Exchange(settings, self._ports.clock)
        self.exchange.on_capacity = self._resume
        self._owner = owner
        self._transport: Transport | None = None
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._is_over = self._has_heard = False
        self._give_up = owner._network.connect(owner.address, settings.tls, self)
        self._wake_in(settings.connect_timeout_ms)

    def send(self, call: Call) -> None:
        self.exchange.add(call)
        self._continue()
        self._wake_in(call.timeout_ms)

    def end(self, reason: OSError) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._owner._ended(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._give_up()
        self.exchange.end(reason)

    # -- Receiver

    def opened(self, transport: Transport) -> None:
        if self._is_over:
            transport.abort()
            return
        self._transport = transport
        self.exchange.opened()
        self._continue()

    def buffer(self) -> memoryview:
        return self.exchange.buffer()

    def received(self, count: int) -> None:
        if self._is_over:
            return
        self._has_heard = True
        try:
            found = self.exchange.received(count)
        except OSError as reason:
            self.end(reason)
            return
        if found is not None:
            self._owner._answered(*found)
            if self.exchange.is_idle:
                self._wake_in(self._owner._settings.idle_ms_max)
        self._continue()

    def lost(self, reason: OSError | None) -> None:
        self.end(reason or self.exchange.closed())

    # -- inside

    def _continue(self) -> None:
        if self._transport is not None and not self._is_over:
            data = self.exchange.take_outgoing()
            if data:
                self._transport.write(data)
            if not self.exchange.is_reading:
                self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self._is_over:
            self._transport.resume_reading()
            self._wake_in(0)

    def _wake_in(self, delay_ms: int) -> None:
        due_ms = self._ports.clock.monotonic_ms() + delay_ms
        if self._is_over or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._ports.scheduler.call_later(max(delay_ms, 0), self._time_passed)

    def _time_passed(self) -> None:
        """End the requests without time left, once the socket's received data is read.

        The loop may have been held. A timer of no delay runs after the receiving in the
        loop's next iteration.
        """
        self._timer = None
        if self._has_heard:
            self._has_heard = False
            self._wake_in(0)
            return
        try:
            left_ms = self.exchange.pass_time()
        except TimeoutError as reason:
            self.end(reason)
            return
        if left_ms is not None:
            self._wake_in(left_ms)


class Connections:
    """One connection for each address, for one purpose.

    Answers come in the order of the requests. So requests that must not wait for slow ones have
    connections of their own.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        ports: Ports,
        network: Network | None = None,
    ) -> None:
        """Nothing is opened yet; arguments as of `Connection`."""
        self._settings, self._ports, self._network = settings, ports, network
        self._by_address: dict[Address, Connection] = {}
        self._is_closed = False

    def to(self, address: Address) -> Connection:
        """The connection to this address."""
        found = self._by_address.get(address)
        if found is None:
            if len(self._by_address) >= KEPT:
                self._by_address = {
                    at: one for at, one in self._by_address.items() if one.is_in_use
                }
            found = Connection(address, self._settings, self._ports, self._network)
            self._by_address[address] = found
            if self._is_closed:
                found.close()
        return found

    def close(self) -> None:
        """Close all, permanently."""
        self._is_closed = True
        for one in self._by_address.values():
            one.close()
