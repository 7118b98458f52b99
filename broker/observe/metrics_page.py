"""The page of metrics: our own values and the tier's, made between other work of the loop."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from broker.observe.http import PROMETHEUS, HttpAnswer
from runtime.metrics import Registry


class OtherProcess(Protocol):
    """A process of ours that counts, too."""

    async def page(self) -> Sequence[bytes]:
        """Its newest page in pieces; it does not take long. No name on it is on ours."""
        ...


class MetricsPage:
    """Answers scrapes; those that come while a page is being made share it.

    Attributes:
        others: processes whose pages follow ours.
    """

    def __init__(self, metrics: Registry) -> None:
        self._metrics = metrics
        self._making: asyncio.Task[HttpAnswer] | None = None
        self.others: list[OtherProcess] = []

    async def answer(self) -> HttpAnswer:
        """The page; the loop does other things while it is made."""
        if self._making is None:
            self._making = asyncio.create_task(self._make())
        # Shielded: others may wait for it when this scrape is cut.
        return await asyncio.shield(self._making)

    async def _make(self) -> HttpAnswer:
        try:
            theirs = [piece for other in self.others for piece in await other.page()]
            pieces = []
            for piece in self._metrics.pieces():
                pieces.append(piece)
                await asyncio.sleep(0)
            return HttpAnswer(200, PROMETHEUS, b"", [*pieces, *theirs])
        finally:
            self._making = None
