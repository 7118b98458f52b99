"""Delays answers until the tier has validated a log.

After a retriable error some clients retry at once. librdkafka does so several thousand times a
second, because it looks positions up at each metadata answer. Java's consumer retries a Fetch as
often. Other clients ask once and return the error to their user. A delayed answer is better for
both.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from broker.replica.partition import Partition
from runtime.clock import Clock
from runtime.scheduler import Scheduler

HOLD_MS = 500
"""How long the first request of a connection waits; later ones within this time do not wait."""

VALIDATION_WAIT_MAX_MS = 5_000
"""How long a request waits whose client does not retry."""

PEERS_MAX = 10_000
"""Connections whose last wait is remembered; a forgotten one waits at its next request."""


class Holding:
    """Waits for log validations; with `once`, at most once per connection and `HOLD_MS`."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock, self._scheduler = clock, scheduler
        # Ordered by time, so that expired entries are first. No dict: finding its first entry costs
        # as much as was deleted before it.
        self._held: OrderedDict[tuple[str, int], int] = OrderedDict()

    @property
    def remembered(self) -> int:
        """Number of connections whose last wait is remembered."""
        return len(self._held)

    def is_due(self, peer: tuple[str, int]) -> bool:
        """True if this connection has not waited for `HOLD_MS`; later requests wait behind it."""
        last = self._held.get(peer)
        return last is None or self._clock.monotonic_ms() - last >= HOLD_MS

    async def once(self, peer: tuple[str, int], partitions: Sequence[Partition]) -> None:
        """Wait for the partitions, and record that this connection waited."""
        try:
            await self.until_sound(partitions, HOLD_MS)
        finally:
            self._note(peer)

    def _note(self, peer: tuple[str, int]) -> None:
        now_ms = self._clock.monotonic_ms()
        self._held[peer] = now_ms
        self._held.move_to_end(peer)
        while now_ms - self._held[next(iter(self._held))] >= HOLD_MS or len(self._held) > PEERS_MAX:
            self._held.popitem(last=False)

    async def until_sound(self, partitions: Sequence[Partition], wait_ms: int) -> None:
        """Return when all are sound or no longer led here, or after `wait_ms`."""
        await self._until(lambda each: each.is_sound, partitions, wait_ms)

    async def until_validated(self, partitions: Sequence[Partition], timeout_ms: int) -> None:
        """Return when none is unvalidated, sound or not, or when the time is up."""
        unvalidated = [each for each in partitions if each.is_unvalidated]
        wait_ms = min(timeout_ms, VALIDATION_WAIT_MAX_MS)
        if unvalidated and wait_ms > 0:
            await self._until(lambda each: not each.is_unvalidated, unvalidated, wait_ms)

    async def _until(
        self, is_over: Callable[[Partition], bool], partitions: Sequence[Partition], wait_ms: int
    ) -> None:
        waiting = _Waiting(is_over, partitions)
        timer = self._scheduler.call_later(wait_ms, waiting.end)
        try:
            await waiting.over
        finally:
            timer.cancel()
            waiting.leave()


class _Waiting:
    """A waiter on several partitions."""

    def __init__(
        self, is_over: Callable[[Partition], bool], partitions: Sequence[Partition]
    ) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_over, self._partitions = is_over, partitions
        for partition in partitions:
            partition.waiters[self] = None
        self.on_change()

    def on_bytes(self, size_bytes: int) -> None:
        """Ignored: bytes do not validate a log."""

    def on_change(self) -> None:
        """End the wait if all partitions are validated, or no longer led here."""
        if all(
            self._is_over(each) or not each.is_leader or each.deleted for each in self._partitions
        ):
            self.end()

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def leave(self) -> None:
        for partition in self._partitions:
            partition.waiters.pop(self, None)
