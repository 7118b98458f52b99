"""The wait in ms that keeps an average rate below its limit. Pure.

The rate is that of the last `window_count` windows, the current one included, as in Kafka's quota
managers. Bytes are recorded only when they pass. A caller checks and records in one step, so that
two callers cannot use the same room (KAFKA-19968).
"""

from collections import deque
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

THROTTLES_WINDOW_MS, THROTTLE_MS = 60_000, 1_000


class Throttling(NamedTuple):
    """Effect of a quota in the last minute: pauses in ms (0 without any), and the present rate."""

    average_ms: float
    longest_ms: float
    bytes_per_second: float


@dataclass(slots=True)
class _Pauses:
    """The pauses of one second."""

    began_ms: int
    count: int = 0
    total_ms: int = 0
    longest_ms: int = 0


class RateQuota:
    """One limit in bytes per second; from any thread."""

    def __init__(
        self, bytes_per_second: int, window_count: int = 11, window_seconds: int = 1
    ) -> None:
        self._limit = bytes_per_second
        self._window_ms = window_seconds * 1000
        self._count = window_count
        self._windows: deque[tuple[int, int]] = deque()  # (number of the window, bytes)
        self._throttles: deque[_Pauses] = deque()  # one for each second
        self._lock = Lock()

    def set_limit(self, bytes_per_second: int) -> None:
        """Change the limit; bytes that have passed already still count."""
        with self._lock:
            self._limit = bytes_per_second

    def throttling(self, now_ms: int) -> Throttling:
        """For metrics."""
        with self._lock:
            self._forget(now_ms)
            rate = self._used() * 1000 / self._span_ms(now_ms)
            count = sum(each.count for each in self._throttles)
            total_ms = sum(each.total_ms for each in self._throttles)
            longest_ms = max((each.longest_ms for each in self._throttles), default=0)
            return Throttling(total_ms / count if count else 0, longest_ms, rate)

    def throttle_ms(self, size_bytes: int, now_ms: int) -> int:
        """Record `size_bytes` and let them pass, or return the wait before the next try.

        Bytes pass whole while the average is below the limit, however many: a segment larger than
        the limit must pass at some time.

        Returns:
            0: recorded, may pass. Else milliseconds, at least 1.
        """
        with self._lock:
            pause_ms = self._wait_ms(now_ms)
            if pause_ms:
                self._throttled(pause_ms, now_ms)
            else:
                self._record(size_bytes, now_ms)
            return pause_ms

    def wait_ms(self, now_ms: int) -> int:
        """Wait in ms until anything may pass, 0 if it may now; records nothing."""
        with self._lock:
            return self._wait_ms(now_ms)

    def throttled(self, pause_ms: int, now_ms: int) -> None:
        """Count a pause of a caller, for metrics."""
        with self._lock:
            self._throttled(pause_ms, now_ms)

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Record bytes whose number was known only afterwards; negative if fewer passed."""
        with self._lock:
            self._record(size_bytes, now_ms)

    def _wait_ms(self, now_ms: int) -> int:
        self._forget(now_ms)
        span_ms, used = self._span_ms(now_ms), self._used()
        if used * 1000 < self._limit * span_ms:
            return 0
        # The span grows until all windows are full, after that the oldest must leave.
        wait_ms = used * 1000 // self._limit - span_ms + 1
        return max(1, min(wait_ms, self._count * self._window_ms))

    def _used(self) -> int:
        return max(0, sum(size for _, size in self._windows))

    def _throttled(self, pause_ms: int, now_ms: int) -> None:
        if not self._throttles or now_ms - self._throttles[-1].began_ms >= THROTTLE_MS:
            self._throttles.append(_Pauses(now_ms))
        pauses = self._throttles[-1]
        pauses.count += 1
        pauses.total_ms += pause_ms
        pauses.longest_ms = max(pauses.longest_ms, pause_ms)

    def _span_ms(self, now_ms: int) -> int:
        full_ms = (self._count - 1) * self._window_ms
        return full_ms + now_ms % self._window_ms + 1

    def _forget(self, now_ms: int) -> None:
        oldest = now_ms // self._window_ms - self._count + 1
        while self._windows and self._windows[0][0] < oldest:
            self._windows.popleft()
        while self._throttles and now_ms - self._throttles[0].began_ms > THROTTLES_WINDOW_MS:
            self._throttles.popleft()

    def _record(self, size_bytes: int, now_ms: int) -> None:
        number = now_ms // self._window_ms
        if self._windows and self._windows[-1][0] == number:
            size_bytes += self._windows.pop()[1]
        self._windows.append((number, size_bytes))
