"""Copying passes that wait for the copy quota, with one timer for all of them.

The quota admits a fixed number of bytes, however many partitions lag. With a timer for each refused
pass, the logs of all would be validated for each segment that one of them may copy. So one pass is
admitted when the quota has bytes left, in the order of the refusals. The next one follows when that
pass copies or has ended. They also start at their interval, to measure their lag and to report. All
runs on the manager's thread, except `throttle_ms`.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from rlm.config import TierConfig
from rlm.maintenance.census import PartitionKey
from rlm.quota import RateQuota
from runtime.clock import Clock
from runtime.scheduler import Scheduler, Timer

NEXT_MS: Final = 100
"""An admitted pass may wait for a thread, or have ended with its ownership. After this time the
next one is admitted anyway."""


class ThrottledCopies:
    """The passes that the quota refused.

    Attributes:
        quota: Of copied bytes.
    """

    def __init__(
        self,
        start: Callable[[PartitionKey], None],
        post: Callable[[Callable[[], None]], None],
        config: TierConfig,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        """Nothing waits.

        Args:
            start: Starts the copying pass of a partition, if the partition still exists.
            post: Calls a function on the manager's thread.
            config: Has the quota.
            clock: Monotonic.
            scheduler: For the timer.
        """
        self._start, self._post = start, post
        self._clock, self._scheduler = clock, scheduler
        self.quota = RateQuota(
            config.copy_bytes_per_second,
            config.copy_quota_window_count,
            config.copy_quota_window_seconds,
        )
        self._waiting: OrderedDict[PartitionKey, None] = OrderedDict()
        self._let_in: set[PartitionKey] = set()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        """Number of waiting partitions."""
        return len(self._waiting)

    def reconfigure(self, config: TierConfig) -> None:
        """Use the limit of `config` from now on."""
        self.quota.set_limit(config.copy_bytes_per_second)
        self.proceed()

    def throttle_ms(self, key: PartitionKey, size_bytes: int) -> int:
        """Wait of a segment of the partition in ms, 0 if it may be copied; from any thread.

        While others wait, a partition that was not admitted is refused: it would take the room of
        the first.
        """
        if self._waiting and key not in self._let_in:
            return NEXT_MS
        wait_ms = self.quota.throttle_ms(size_bytes, self._clock.monotonic_ms())
        if wait_ms == 0:
            self._let_in.discard(key)
            if self._waiting:
                self._post(self.proceed)
        return wait_ms

    def ended(self, key: PartitionKey, *, is_throttled: bool) -> None:
        """A copying pass has ended; `is_throttled`: the quota refused it."""
        was_let_in = key in self._let_in
        self._let_in.discard(key)
        if not is_throttled:
            self._waiting.pop(key, None)
        elif key not in self._waiting:
            self._waiting[key] = None
            if was_let_in:  # another pass took the room: this one is still the first
                self._waiting.move_to_end(key, last=False)
        if was_let_in or self._timer is None:
            self.proceed()

    def forget(self, key: PartitionKey) -> None:
        """The partition is no longer ours."""
        self._waiting.pop(key, None)
        self._let_in.discard(key)

    def proceed(self) -> None:
        """Start the next waiting pass, or schedule it for when there is room."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        now_ms = self._clock.monotonic_ms()
        wait_ms = self.quota.wait_ms(now_ms)
        self._timer = self._scheduler.call_later(wait_ms or NEXT_MS, self.proceed)
        if wait_ms:
            self.quota.throttled(wait_ms, now_ms)
        else:
            key, _ = self._waiting.popitem(last=False)
            self._let_in.add(key)
            self._start(key)
