"""Remote batches that a reader will ask for next, held by the broker for a moment.

The tier answers a sequential reader beyond its request; the rest waits here under the offset of the
reader's next request. A buffered range may be outdated: the caller that takes one checks
leadership, leader epoch and log start as for a fresh answer.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from rlm.link.messages import Read, ReadAnswer
from runtime.clock import Clock
from runtime.scheduler import Scheduler

IDLE_MS = 2_000
"""After so long without a reader a buffered range releases the tier's memory."""

BUFFERED_RANGES_MAX = 256


class Position(NamedTuple):
    """The reader's next request. All of it must be equal for a buffered range to serve it.

    The connection is a part of it, because the memory was leased to that connection.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    offset_epoch: int
    read_committed: bool
    holder: str


def position_of(question: Read) -> Position:
    """The position of a request."""
    return Position(
        question.topic_id,
        question.partition,
        question.leader_epoch,
        question.offset,
        question.offset_epoch,
        question.read_committed,
        question.holder,
    )


class BufferedRange:
    """Whole batches from `position` on, consumed from the front.

    Attributes:
        position: Of the reader's next request.
        has_aborted: The local log has aborted transactions within it. The value is final when the
            buffered range is made: all of it lies below the last stable offset.
        local_start: Of the log when the buffered range was made. Segments that left the local log
            since are not searched for aborted transactions any more.
        used_ms: Time of the last `take`, on the monotonic clock.
    """

    __slots__ = (
        "_begin",
        "_ends",
        "_last_offsets",
        "_next",
        "_regions",
        "has_aborted",
        "local_start",
        "position",
        "used_ms",
    )

    def __init__(
        self,
        position: Position,
        answer: ReadAnswer,
        regions: list[memoryview],
        *,
        has_aborted: bool = False,
        local_start: int = 0,
    ) -> None:
        """Hold the regions of an answer that has a table of its batches."""
        self.position, self.has_aborted = position, has_aborted
        self.local_start = local_start
        self.used_ms = 0
        self._regions = deque(regions)
        self._begin = 0  # offset of the first region in the bytes that the table counts
        self._next = 0  # first batch that was not taken
        self._ends, self._last_offsets = array("q", answer.batch_ends), array("q")
        self._last_offsets.frombytes(answer.last_offsets)

    @property
    def remaining_bytes(self) -> int:
        """Bytes that were not taken."""
        return self._ends[-1] - self._taken_end()

    @property
    def end_offset(self) -> int:
        """First offset after its last batch."""
        return self._last_offsets[-1] + 1

    def _taken_end(self) -> int:
        return self._ends[self._next - 1] if self._next else 0

    def take(self, max_bytes: int, *, min_one_batch: bool) -> list[memoryview]:
        """Take the next batches, all that fit, or one; empty if none fits or none is left."""
        start = self._taken_end()
        stop = bisect_right(self._ends, start + max_bytes, self._next)
        if stop == self._next:
            if not min_one_batch or stop == len(self._ends):
                return []
            stop += 1
        end = self._ends[stop - 1]
        self._next = stop
        self.position = self.position._replace(offset=self._last_offsets[stop - 1] + 1)
        return self._cut(start, end)

    def _cut(self, start: int, end: int) -> list[memoryview]:
        """Bytes [start, end), which begin in the first region; drops regions that end in them."""
        parts = []
        while start < end:
            region = self._regions[0]
            region_end = self._begin + len(region)
            parts.append(region[start - self._begin : end - self._begin])
            if region_end > end:
                break
            self._regions.popleft()
            self._begin = start = region_end
        return parts


class BufferedRanges:
    """All buffered ranges of a broker, by their reader's next position."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock, self._scheduler = clock, scheduler
        self._buffered: OrderedDict[Position, BufferedRange] = OrderedDict()
        self._armed = False

    def __len__(self) -> int:
        """Buffered ranges held."""
        return len(self._buffered)

    def pop(self, position: Position) -> BufferedRange | None:
        """Remove and return the buffered range that begins at a position."""
        return self._buffered.pop(position, None)

    def __contains__(self, position: Position) -> bool:
        """True if a buffered range begins there."""
        return position in self._buffered

    def put(self, buffered: BufferedRange) -> None:
        """Hold a buffered range until its reader comes back, or for `IDLE_MS`."""
        if not buffered.remaining_bytes:
            return
        buffered.used_ms = self._clock.monotonic_ms()
        self._buffered.pop(buffered.position, None)
        self._buffered[buffered.position] = buffered
        if len(self._buffered) > BUFFERED_RANGES_MAX:
            self._buffered.popitem(last=False)
        if not self._armed:
            self._armed = True
            self._scheduler.call_later(IDLE_MS // 2, self._sweep)

    def _sweep(self) -> None:
        self._armed = False
        limit_ms = self._clock.monotonic_ms() - IDLE_MS
        while self._buffered and next(iter(self._buffered.values())).used_ms <= limit_ms:
            self._buffered.popitem(last=False)
        if self._buffered:
            self._armed = True
            self._scheduler.call_later(IDLE_MS // 2, self._sweep)

    def clear(self) -> None:
        """Release everything."""
        self._buffered.clear()


class Expected:
    """Requests sent ahead of a reader, and the readers that wait for their answers."""

    def __init__(self) -> None:
        self._waiters: dict[Position, list[Callable[[], None]]] = {}

    def __contains__(self, position: Position) -> bool:
        """True if an answer for this position is on its way."""
        return position in self._waiters

    def ask(self, position: Position) -> None:
        """Note a request that was sent."""
        self._waiters[position] = []

    def wait(self, position: Position, waiter: Callable[[], None]) -> None:
        """Have `waiter` called when the answer has come or failed."""
        self._waiters[position].append(waiter)

    def over(self, position: Position) -> None:
        """Call the waiters: the answer has come or failed."""
        for waiter in self._waiters.pop(position, ()):
            waiter()
