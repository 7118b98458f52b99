"""Remote batches that a reader will ask for next, held by the broker for a moment.

The tier answers a reader that continues beyond what it asked for; the rest waits here under the
offset at which the reader will come back. A buffered range says nothing about what is true now:
whoever takes one checks leadership, leader epoch and log start as for a fresh answer.
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
"""A buffered range that nobody asked for gives the tier its memory back after this long."""

BUFFERED_RANGES_MAX = 256


class Position(NamedTuple):
    """Where a reader comes back. All of it must be equal for a buffered range to serve it.

    Also the connection: what a buffered range holds was leased to that one.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    offset_epoch: int
    read_committed: bool
    holder: str


def position_of(question: Read) -> Position:
    """The position at which a question reads."""
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
        position: where its reader comes back.
        has_aborted: the local log knows transactions that were aborted within it. That is final
            when the buffered range is made: all of it lies below the last stable offset.
        local_start: of the log when the buffered range was made; what became remote since is not
            looked up locally any more.
        used_ms: when it was last taken from, on the monotonic clock.
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
        self._begin = 0  # of the first region, where the table counts from
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
        """Take the next batches, as many as fit (or one); empty if none fits or none is left."""
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
        """Bytes [start, end), which begin in the first region; lets go of regions left behind."""
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
    """All buffered ranges of a broker, by the position at which their reader comes back."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock, self._scheduler = clock, scheduler
        self._buffered: OrderedDict[Position, BufferedRange] = OrderedDict()
        self._armed = False

    def __len__(self) -> int:
        """Buffered ranges held."""
        return len(self._buffered)

    def pop(self, position: Position) -> BufferedRange | None:
        """Take the buffered range that begins at a position out."""
        return self._buffered.pop(position, None)

    def __contains__(self, position: Position) -> bool:
        """Whether a buffered range begins there."""
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
        """Give everything back."""
        self._buffered.clear()


class Expected:
    """Questions asked ahead of a reader, and who came for their answers meanwhile."""

    def __init__(self) -> None:
        self._waiters: dict[Position, list[Callable[[], None]]] = {}

    def __contains__(self, position: Position) -> bool:
        """Whether an answer for this position is on its way."""
        return position in self._waiters

    def ask(self, position: Position) -> None:
        """A question was asked."""
        self._waiters[position] = []

    def wait(self, position: Position, waiter: Callable[[], None]) -> None:
        """Have `waiter` called when the answer is there, or will not come."""
        self._waiters[position].append(waiter)

    def over(self, position: Position) -> None:
        """The answer came, or failed."""
        for waiter in self._waiters.pop(position, ()):
            waiter()
