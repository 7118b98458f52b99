"""The memory of the answers that wait for all peers together.

Some megabytes can wait for a peer that does not read, so thousands of such peers can exhaust the
memory. Above the bound, the connections with the most waiting bytes are closed until an eighth of
it is free again. Little waits for peers that read, so they are not affected.

DIFFERS: Kafka has no such bound; it makes one answer at a time for a connection.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from runtime.metrics import Registry

FREED_PART: Final = 8


class Holder(Protocol):
    """A connection with waiting bytes."""

    @property
    def waiting_bytes(self) -> int:
        """The bytes that it last reported by `Unsent.change`."""
        ...

    def close(self, reason: str) -> None:
        """Close now; this calls `Unsent.change` before it returns."""
        ...


class Unsent:
    """Sum of the waiting bytes, and its bound. Belongs to one event loop.

    Attributes:
        bytes: Bytes waiting for all peers.
    """

    __slots__ = ("_bound", "_call_soon", "_closing_is_due", "_holders", "_shown", "_used", "bytes")

    def __init__(
        self,
        bytes_max: int,
        call_soon: Callable[[Callable[[], None]], object],
        holders: Iterable[Holder],
        metrics: Registry,
    ) -> None:
        """`holders` are the candidates for closing."""
        self._bound, self._call_soon, self._holders = bytes_max, call_soon, holders
        self.bytes = self._shown = 0
        self._closing_is_due = False
        self._used = metrics.gauge(
            "tidemark_connections_unsent_bytes",
            "Bytes of answers, in memory, that wait until peers read them.",
        )

    def change(self, more: int) -> None:
        """Add `more` waiting bytes; negative: they were sent."""
        self.bytes += more
        if self.bytes > self._bound and not self._closing_is_due:
            self._closing_is_due = True
            self._call_soon(self._close_some)

    def show(self) -> None:
        """Bring the metric up to date; an answer does not touch it."""
        self._used.inc(self.bytes - self._shown)
        self._shown = self.bytes

    def _close_some(self) -> None:
        self._closing_is_due = False
        left = self._bound - self._bound // FREED_PART
        if self.bytes <= self._bound:
            return
        most = [(-one.waiting_bytes, n, one) for n, one in enumerate(self._holders)]
        heapq.heapify(most)
        while most and self.bytes > left:
            waiting, _, one = heapq.heappop(most)
            one.close(
                f"{-waiting} bytes wait until it reads them, the most of all; together they are "
                f"more than tidemark.connections.unsent.bytes.max={self._bound}"
            )
