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
    """Answers scrapes, one after the other.

    Attributes:
        others: processes whose pages follow ours.
    """

    def __init__(self, metrics: Registry) -> None:
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()
        self.others: list[OtherProcess] = []

    async def answer(self) -> HttpAnswer:
        """Make the page; the loop does other things between two pieces."""
        async with self._one_at_a_time:
            theirs = [piece for other in self.others for piece in await other.page()]
            pieces = []
            for piece in self._metrics.pieces():
                pieces.append(piece)
                await asyncio.sleep(0)
        return HttpAnswer(200, PROMETHEUS, b"", [*pieces, *theirs])
