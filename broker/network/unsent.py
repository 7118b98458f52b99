"""What waits, in memory, to be sent to all peers together.

A peer that does not read has some megabytes wait for it, and thousands of them more than there are.
So where all have more than the bound the connections with the most are closed, until an eighth of
it is free again: those that read are not among them, for little waits for them.

DIFFERS: Kafka has no such bound; it makes one answer at a time for a connection.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from runtime.metrics import Registry

FREED_PART: Final = 8


class Holder(Protocol):
    """A connection with bytes that wait."""

    @property
    def waiting_bytes(self) -> int:
        """As it told last."""
        ...

    def close(self, reason: str) -> None:
        """Close now; `change` is called on the way."""
        ...


class Unsent:
    """Belongs to one event loop.

    Attributes:
        bytes: what waits for all peers.
    """

    __slots__ = ("_bound", "_call_soon", "_closing_is_due", "_holders", "_shown", "_used", "bytes")

    def __init__(
        self,
        bytes_max: int,
        call_soon: Callable[[Callable[[], None]], object],
        holders: Iterable[Holder],
        metrics: Registry,
    ) -> None:
        """`holders` are looked through where there is too much."""
        self._bound, self._call_soon, self._holders = bytes_max, call_soon, holders
        self.bytes = self._shown = 0
        self._closing_is_due = False
        self._used = metrics.gauge(
            "tidemark_connections_unsent_bytes",
            "Bytes of answers, in memory, that wait until peers read them.",
        )

    def change(self, more: int) -> None:
        """So many more bytes wait, or fewer."""
        self.bytes += more
        if self.bytes > self._bound and not self._closing_is_due:
            self._closing_is_due = True
            self._call_soon(self._close_some)

    def show(self) -> None:
        """Bring the metric up to now: an answer costs none."""
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
