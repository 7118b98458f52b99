"""The memory that the large requests of all connections may take together, as bytes or as objects.

A frame that gets a buffer of its own takes its whole length before its bytes are received, and
gives it back when nothing uses them any more. As in Kafka it may take it while anything is left: so
the bound and one largest request are taken at most, and a frame that was begun never waits for
another one. Where nothing is left its connection is not read; it waits in the queue.

Addresses have their time slices, and connections of an address in the order in which they came. An
address that holds half of the memory takes no more of it: a client that announces much and sends
nothing holds up those beside it, and nobody else.
DIFFERS: Kafka knows no addresses; its connections continue in any order.

`WideRequests` keeps a second one by the same rules, of what requests decode to.

Small frames take nothing, for they are received in the buffer that all connections share: votes,
heartbeats and fetches continue whatever is taken here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from runtime.clock import Clock
from runtime.metrics import Counter, Gauge, Registry

SHARES: Final = 2
"""The part of an address is the whole divided by this."""
CALLED_AT_ONCE_MAX: Final = 64
"""Connections that continue in one iteration of the loop."""


class Waiter(Protocol):
    """A connection that waits for memory."""

    @property
    def address(self) -> str:
        """Of the peer, without its port."""
        ...

    def memory_is_there(self) -> None:
        """Ask again: it is the next."""
        ...

    def fail(self, error: Exception) -> None:
        """End: `memory_is_there` raised this."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryMetrics:
    """What is told of a memory; see `of_frames` and `of_objects`."""

    used: Gauge
    available: Gauge
    depleted_ms: Counter
    waiting: Gauge


def of_frames(metrics: Registry) -> MemoryMetrics:
    """Of the bytes of large requests."""
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
    """Of what large requests decode to."""
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
    """Belongs to one event loop.

    Attributes:
        used_bytes: taken now; at most the bound and one request.
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
        """Nothing is taken; `call_soon` has a function called in a later iteration of the loop."""
        self._bound, self._clock, self._call_soon = bytes_max, clock, call_soon
        self.used_bytes = 0
        self._held: dict[str, int] = {}  # address -> bytes
        self._queues: dict[str, dict[Waiter, int]] = {}  # address -> who waits, and since when
        self._called: Waiter | None = None
        self._call_is_due = False
        self._depleted_since_ms: int | None = None
        # Changed, not set: the servers of a process, of clients and of controllers, share them; and
        # by `show`, which the server calls at times: a frame costs no metric.
        self._shown_bytes = 0
        self._metrics = metrics
        metrics.available.inc(bytes_max)

    def is_short_for(self, address: str) -> bool:
        """Whether no request from there may begin now."""
        held = self._held.get(address, 0)
        return self.used_bytes >= self._bound or held * SHARES >= self._bound

    def ask(self, waiter: Waiter) -> bool:
        """Say whether a frame may begin; where not, the connection is called when it may ask again.

        A newcomer does not overtake those who were called and have not had their time slice.
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
        """The connection waits no longer."""
        queue = self._queues.get(waiter.address)
        if queue is not None and queue.pop(waiter, None) is not None:
            self._metrics.waiting.inc(-1)
            if not queue:
                del self._queues[waiter.address]
                self.show()

    def take(self, address: str, size_bytes: int) -> None:
        """A frame begins that asked before, or need not ask."""
        self.used_bytes += size_bytes
        self._held[address] = self._held.get(address, 0) + size_bytes

    def give_back(self, address: str, size_bytes: int) -> None:
        """The bytes of a frame are used no more."""
        self.used_bytes -= size_bytes
        left = self._held.get(address, 0) - size_bytes
        if left:
            self._held[address] = left
        else:
            self._held.pop(address, None)
        if self._queues:
            self._call()

    def longest_wait_ms(self, now_ms: int) -> int:
        """How long the connection waits that has waited longest."""
        firsts = [next(iter(queue.values())) for queue in self._queues.values()]
        return now_ms - min(firsts, default=now_ms)

    def waiting_since(self, ms: int) -> list[Waiter]:
        """Those that wait since then or longer."""
        queues = self._queues.values()
        return [one for queue in queues for one, since_ms in queue.items() if since_ms <= ms]

    def show(self) -> None:
        """Bring the metrics up to now."""
        more = self.used_bytes - self._shown_bytes
        self._shown_bytes = self.used_bytes
        self._metrics.used.inc(more)
        self._metrics.available.inc(-more)
        since_ms = self._depleted_since_ms
        if since_ms is not None:
            now_ms = self._clock.monotonic_ms()
            self._metrics.depleted_ms.inc(now_ms - since_ms)
            self._depleted_since_ms = now_ms if self._queues else None

    # -- time slices

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
        """Take the connection out of its queue whose turn it is, if one may continue."""
        if self.used_bytes >= self._bound:
            return None  # without a look at each address: thousands may wait
        address = next((one for one in self._queues if not self.is_short_for(one)), None)
        if address is None:
            return None
        queue = self._queues.pop(address)
        waiter = next(iter(queue))
        del queue[waiter]
        if queue:
            self._queues[address] = queue  # the other addresses are before it now
        self._metrics.waiting.inc(-1)
        if not self._queues:
            self.show()
        return waiter
