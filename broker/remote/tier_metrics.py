"""The tier's page of metrics as the broker serves it: text that is passed on unread.

A scrape asks the tier for it, piece by piece. Each piece is a few milliseconds of the tier's thread
and a small frame on the link, so heartbeats and reads go in between. A page that is late is still
received; until it is complete the one before is served, with its age.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future as ThreadFuture
from typing import Final, Protocol

from rlm.link.endpoint import Received
from rlm.link.messages import AnyMessage, DescribeMetrics, MetricsPiece
from runtime.clock import Clock
from runtime.metrics import Registry

WAIT_MS: Final = 2_000
"""Time that a scrape waits for the tier: scrapers give up after 10 s, and some sooner."""


class Asks(Protocol):
    """Sends requests to the tier."""

    def ask(self, message: AnyMessage) -> "ThreadFuture[Received]":
        """Send one; it fails with LinkEndedError when the tier ends, or is not up."""
        ...


class TierMetrics:
    """Asks for pages, one at a time, on the broker's event loop; keeps the last one."""

    def __init__(
        self,
        tier: Asks,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        metrics: Registry,
    ) -> None:
        self._tier, self._clock, self._loop = tier, clock, loop
        self._number = 0
        self._coming: asyncio.Future[None] | None = None  # done when the page has come or failed
        self._last: Sequence[bytes] = ()
        self._last_ms: int | None = None
        metrics.gauge(
            "tidemark_remote_metrics_age_ms",
            "Age of the tier's values on this page: they are old where the tier is late or away",
            fn=self._age,
        )

    async def page(self) -> Sequence[bytes]:
        """The present page, or the last one while the tier is late or not up."""
        if self._coming is None:
            self._begin()
        if self._coming is not None:
            await asyncio.wait([self._coming], timeout=WAIT_MS / 1000)
        return self._last

    def _age(self) -> dict[tuple[str, ...], float]:
        return {} if self._last_ms is None else {(): self._clock.monotonic_ms() - self._last_ms}

    def _begin(self) -> None:
        self._number += 1
        coming = self._coming = self._loop.create_future()
        begun_ms, number, pieces = self._clock.monotonic_ms(), self._number, list[bytes]()

        def ask() -> None:
            self._tier.ask(DescribeMetrics(number)).add_done_callback(answered)

        def answered(done: "ThreadFuture[Received]") -> None:
            if done.exception() is not None:  # the tier has ended
                end()
                return
            piece = done.result().message
            assert isinstance(piece, MetricsPiece), piece
            pieces.append(piece.content)
            if not piece.is_last:
                ask()
                return
            self._last, self._last_ms = pieces, begun_ms
            end()

        def end() -> None:
            self._coming = None
            if not coming.done():
                coming.set_result(None)

        ask()
