"""A network of bytes on a clock that the test moves: no socket, no event loop."""

from collections.abc import Callable
from ssl import SSLContext
from typing import Protocol

from kafka_client.transport import Address, Receiver
from runtime.rng import Rng
from runtime.scheduler import Scheduler


class Served(Protocol):
    """The other side of one connection."""

    def received(self, data: bytes, answer: Callable[[bytes], None]) -> None:
        """Take bytes; `answer` sends some back."""
        ...


class SimNetwork:
    """Connections to nodes of the test; each piece of bytes takes a time that the rng sayss.

    Attributes:
        nodes: make the other side of a connection, by address; nobody listens elsewhere.
        cut: addresses whose bytes get lost, in both directions.
        connections: how many were opened.
    """

    def __init__(self, scheduler: Scheduler, rng: Rng, delay_ms_max: int = 20) -> None:
        self.scheduler, self.rng, self.delay_ms_max = scheduler, rng, delay_ms_max
        self.nodes: dict[Address, Callable[[], Served]] = {}
        self.cut: set[Address] = set()
        self.connections = 0

    def connect(
        self, address: Address, tls: SSLContext | None, receiver: Receiver
    ) -> Callable[[], None]:
        link = _Link(self, address, receiver)
        link.later(link.arrive)
        return link.abort


class _Link:
    """One connection; a `Transport`."""

    def __init__(self, network: SimNetwork, address: Address, receiver: Receiver) -> None:
        self._network, self._address, self._receiver = network, address, receiver
        self._free_ms = 0.0  # bytes do not overtake each other
        self._arrived, self._is_paused, self._is_over = bytearray(), False, False

    def later(self, fn: Callable[[], object]) -> None:
        network = self._network
        delay_ms = 1 + network.rng.random() * network.delay_ms_max
        network.scheduler.call_later(delay_ms, lambda: None if self._is_over else fn())

    def arrive(self) -> None:
        if self._address in self._network.cut:
            return
        make = self._network.nodes.get(self._address)
        if make is None:
            self._receiver.lost(ConnectionRefusedError("nobody listens"))
            return
        self._network.connections += 1
        self._served, self._wanted, self._sent = make(), bytearray(), bytearray()
        self._receiver.opened(self)

    def write(self, data: bytes) -> None:
        if self._address not in self._network.cut:
            self._wanted += data
            self.later(self._deliver)

    def _deliver(self) -> None:
        """All that was sent until now: the order is kept whatever the delays are."""
        data, self._wanted = bytes(self._wanted), bytearray()
        if data:
            self._served.received(data, self._answer)

    def _answer(self, data: bytes) -> None:
        if self._address not in self._network.cut:
            self._sent += data
            self.later(self._bring_back)

    def _bring_back(self) -> None:
        self._arrived += self._sent
        self._sent.clear()
        self._hand_over()

    def _hand_over(self) -> None:
        while self._arrived and not self._is_paused and not self._is_over:
            room = self._receiver.buffer()
            count = min(len(room), len(self._arrived))
            room[:count] = self._arrived[:count]
            del self._arrived[:count]
            self._receiver.received(count)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self.later(self._hand_over)

    def abort(self) -> None:
        self._is_over = True
