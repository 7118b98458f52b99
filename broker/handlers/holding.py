"""Answers kept back until the tier has judged a log.

Clients ask again at once after a retriable error here: librdkafka several thousand times a second
(it looks at positions again with each metadata answer), and Java's consumer as often for a Fetch.
Others ask once, and hand the error to their user. Both are served best by an answer that waits.
"""

import asyncio
from collections.abc import Sequence

from broker.replica.partition import Partition
from runtime.clock import Clock
from runtime.scheduler import Scheduler

HOLD_MS = 500
"""So long the first question of a connection waits; those behind it are answered at once."""

_PEERS_MAX = 1_000


class Holding:
    """Waits for judgements; at most once per connection and HOLD_MS where it is asked to."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock, self._scheduler = clock, scheduler
        self._held: dict[tuple[str, int], int] = {}

    def is_due(self, peer: tuple[str, int]) -> bool:
        """Whether this connection has not waited just now: others wait behind it."""
        last = self._held.get(peer)
        return last is None or self._clock.monotonic_ms() - last >= HOLD_MS

    async def once(self, peer: tuple[str, int], partitions: Sequence[Partition]) -> None:
        """Wait for the partitions, and note that this connection did."""
        try:
            await self.until_sound(partitions, HOLD_MS)
        finally:
            now_ms = self._clock.monotonic_ms()
            self._held[peer] = now_ms
            if len(self._held) > _PEERS_MAX:
                recent = {p: t for p, t in self._held.items() if now_ms - t < HOLD_MS}
                self._held = recent

    async def until_sound(self, partitions: Sequence[Partition], wait_ms: int) -> None:
        """Return when all are judged sound, or another broker's, or after `wait_ms`."""
        waiting = _Waiting(partitions)
        timer = self._scheduler.call_later(wait_ms, waiting.end)
        try:
            await waiting.over
        finally:
            timer.cancel()
            waiting.leave()


class _Waiting:
    """Parked on several partitions."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._partitions = partitions
        for partition in partitions:
            partition.waiters.add(self)
        self.on_change()

    def on_bytes(self, size_bytes: int) -> None:
        """Bytes judge nothing."""

    def on_change(self) -> None:
        """A judgement came, or the role changed."""
        if all(each.is_sound or not each.is_leader or each.deleted for each in self._partitions):
            self.end()

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def leave(self) -> None:
        for partition in self._partitions:
            partition.waiters.discard(self)
