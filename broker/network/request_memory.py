"""The memory of all large requests together: a bound on their bytes, and one on their objects.

A frame with its own buffer takes its whole length before its bytes are received, and gives it back
after the last use. As in Kafka a frame may begin while any memory is left. So at most the bound and
one largest request are taken, and a frame that has begun never waits for another one. With no
memory left, the connection waits in a queue and is not read.

Addresses take turns, and so do the connections of an address, in the order in which they came. An
address that holds half of the memory gets no more. So a client that announces much and sends
nothing delays the clients at its own address only. DIFFERS: Kafka does not distinguish addresses;
its connections continue in any order.

`WideRequests` has a second instance, for the size of decoded requests.

Small frames take nothing, because they are received in the shared buffer: votes, heartbeats and
fetches never wait here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from runtime.clock import Clock
from runtime.metrics import Counter, Gauge, Registry

SHARES: Final = 2
"""One address may hold the whole divided by this."""
CALLED_AT_ONCE_MAX: Final = 64
"""Connections that may continue in one iteration of the loop."""


class Waiter(Protocol):
    """A connection that waits for memory."""

    @property
    def address(self) -> str:
        """The peer's address without its port."""
        ...

    def memory_is_there(self) -> None:
        """Called when memory is free: ask again in this call."""
        ...

    def fail(self, error: Exception) -> None:
        """Called if `memory_is_there` raised `error`."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryMetrics:
    """Metrics of one memory; made by `of_frames` or `of_objects`."""

    used: Gauge
    available: Gauge
    depleted_ms: Counter
    waiting: Gauge


def of_frames(metrics: Registry) -> MemoryMetrics:
    """Metrics of the bytes of large requests."""
    return MemoryMetrics(
        used=metrics.gauge(
            "kafka_network_SocketServer_MemoryPoolUsed",
            "Bytes of large requests that are received or served.",
        ),
        available=metrics.gauge(
            "kafka_network_SocketServer_MemoryPoolAvailable",
            "What is left of queued.max.request.bytes; below 0 by a part of one request.",
        ),
        depleted_ms=metrics.counter(
            "kafka_server_socket_server_metrics_MemoryPoolDepletedTimeTotal",
            "Milliseconds in which connections waited for memory for their requests.",
        ),
        waiting=metrics.gauge(
            "tidemark_connections_waiting_for_memory",
            "Connections whose next request waits until others give memory back.",
        ),
    )


def of_objects(metrics: Registry) -> MemoryMetrics:
    """Metrics of the objects that large requests decode to."""
    return MemoryMetrics(
        used=metrics.gauge(
            "tidemark_requests_decoded_bytes",
            "Bytes, about, of what large requests that are served decode to.",
        ),
        available=metrics.gauge(
            "tidemark_requests_decoded_available_bytes",
            "What is left of tidemark.decoded.request.bytes.max; below 0 by a part of a request.",
        ),
        depleted_ms=metrics.counter(
            "tidemark_requests_decoding_depleted_ms_total",
            "Milliseconds in which large requests waited until others were served.",
        ),
        waiting=metrics.gauge(
            "tidemark_requests_waiting_for_decoding",
            "Large requests that wait, undecoded, until others are served.",
        ),
    )


class RequestMemory:
    """A bound on memory, with a queue for each address. Belongs to one event loop.

    Attributes:
        used_bytes: Taken now; at most the bound and one request.
    """

    __slots__ = (
        "_bound",
        "_call_is_due",
        "_call_soon",
        "_called",
        "_clock",
        "_depleted_since_ms",
        "_held",
        "_metrics",
        "_queues",
        "_shown_bytes",
        "used_bytes",
    )

    def __init__(
        self,
        bytes_max: int,
        clock: Clock,
        call_soon: Callable[[Callable[[], None]], object],
        metrics: "MemoryMetrics",
    ) -> None:
        """Take nothing yet; `call_soon` runs a function in a later iteration of the loop."""
        self._bound, self._clock, self._call_soon = bytes_max, clock, call_soon
        self.used_bytes = 0
        self._held: dict[str, int] = {}  # address -> bytes
        # address -> waiting connections, and since when
        self._queues: dict[str, dict[Waiter, int]] = {}
        self._called: Waiter | None = None
        self._call_is_due = False
        self._depleted_since_ms: int | None = None
        # The client and the controller server of a process share these metrics. So they are changed
        # and never set. `show` changes them at intervals, so that a frame pays nothing for them.
        self._shown_bytes = 0
        self._metrics = metrics
        metrics.available.inc(bytes_max)

    def is_short_for(self, address: str) -> bool:
        """True if no request of the address may begin now."""
        held = self._held.get(address, 0)
        return self.used_bytes >= self._bound or held * SHARES >= self._bound

    def ask(self, waiter: Waiter) -> bool:
        """True if a frame may begin; if not, its connection is queued and called later.

        The called connection must ask again. A newcomer does not overtake connections that are
        queued or about to be called.
        """
        address = waiter.address
        if waiter is self._called:
            return True
        if not (self._call_is_due or address in self._queues or self.is_short_for(address)):
            return True
        if self._depleted_since_ms is None:
            self._depleted_since_ms = self._clock.monotonic_ms()
        queue = self._queues.setdefault(address, {})
        queue[waiter] = self._clock.monotonic_ms()
        self._metrics.waiting.inc(1)
        return False

    def leave(self, waiter: Waiter) -> None:
        """Remove the connection from the queue, if it is there."""
        queue = self._queues.get(waiter.address)
        if queue is not None and queue.pop(waiter, None) is not None:
            self._metrics.waiting.inc(-1)
            if not queue:
                del self._queues[waiter.address]
                self.show()

    def take(self, address: str, size_bytes: int) -> None:
        """Count a frame that begins; it may exceed the bound."""
        self.used_bytes += size_bytes
        self._held[address] = self._held.get(address, 0) + size_bytes

    def give_back(self, address: str, size_bytes: int) -> None:
        """Count a frame out, and call waiting connections in a later iteration of the loop."""
        self.used_bytes -= size_bytes
        left = self._held.get(address, 0) - size_bytes
        if left:
            self._held[address] = left
        else:
            self._held.pop(address, None)
        if self._queues:
            self._call()

    def longest_wait_ms(self, now_ms: int) -> int:
        """The longest wait of a queued connection; 0: none waits."""
        firsts = [next(iter(queue.values())) for queue in self._queues.values()]
        return now_ms - min(firsts, default=now_ms)

    def waiting_since(self, ms: int) -> list[Waiter]:
        """Connections that have waited since `ms` (monotonic, inclusive) or longer."""
        queues = self._queues.values()
        return [one for queue in queues for one, since_ms in queue.items() if since_ms <= ms]

    def show(self) -> None:
        """Bring the metrics up to date."""
        more = self.used_bytes - self._shown_bytes
        self._shown_bytes = self.used_bytes
        self._metrics.used.inc(more)
        self._metrics.available.inc(-more)
        since_ms = self._depleted_since_ms
        if since_ms is not None:
            now_ms = self._clock.monotonic_ms()
            self._metrics.depleted_ms.inc(now_ms - since_ms)
            self._depleted_since_ms = now_ms if self._queues else None

    # -- whose turn it is

    def _call(self) -> None:
        if not self._call_is_due:
            self._call_is_due = True
            self._call_soon(self._call_next)

    def _call_next(self) -> None:
        self._call_is_due = False
        for _ in range(CALLED_AT_ONCE_MAX):
            waiter = self._next()
            if waiter is None:
                return
            self._called = waiter
            try:
                waiter.memory_is_there()
            except Exception as error:  # noqa: BLE001 - it ends; the others continue
                waiter.fail(error)
            finally:
                self._called = None
        if self._queues:
            self._call()

    def _next(self) -> Waiter | None:
        """Dequeue the next connection that may continue; None: there is none."""
        if self.used_bytes >= self._bound:
            return None  # checked first: thousands of addresses may wait
        address = next((one for one in self._queues if not self.is_short_for(one)), None)
        if address is None:
            return None
        queue = self._queues.pop(address)
        waiter = next(iter(queue))
        del queue[waiter]
        if queue:
            self._queues[address] = queue  # to the end: other addresses come first
        self._metrics.waiting.inc(-1)
        if not self._queues:
            self.show()
        return waiter
