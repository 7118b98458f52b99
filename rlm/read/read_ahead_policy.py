"""How far to load ahead of a reader, and by requests of which size. Pure.

A sequential reader never waits if enough bytes are being loaded for the time of one load: its rate
times that time. Its true rate is unknown while it waits. So a reader that waits gets a multiple of
that product; its rate, and with it the product, can then grow. A reader that does not wait slowly
gets less again, but at least the product. For a reader that is limited by something other than the
store's latency the product stays small, and so does the unread memory.

Never more is loaded ahead than the reader has read in a row: a reader that stops early wastes at
most as much again. At a large depth several chunks are requested at once: a request of any size
costs about a millisecond of CPU.
"""

from dataclasses import dataclass, replace
from math import ceil

SMOOTHING = 0.25
"""Weight of the newest answer in the averages of a reader."""

BELIEF_IN_GOOD, BELIEF_IN_BAD = 0.5, 0.02
"""Weight of the newest load in the estimate of the store, if it is better or worse."""

STALL_SHARE = 0.05
"""A reader that waited for a larger part of its time than this is limited by the tier."""

FIRST_DEPTH = 2
CALM_CHUNKS = 32
"""After so many chunks without a wait the depth shrinks by a quarter."""

PARALLEL_REQUESTS = 4
"""Above this number of parallel requests, further depth makes the requests longer, up to the
maximum."""

RUN_CHUNKS_MAX = 4


@dataclass(slots=True)
class StoreEstimate:
    """Estimate of the store's speed for a single request, from earlier loads.

    Better values count at once and worse ones slowly. A slow load beside many others shows the
    effect of the others, and would otherwise cause still more of them.

    Attributes:
        first_byte_ms: From the request to the first byte.
        bytes_per_ms: Of one request, after that.
        is_known: A load was made; before that both are guesses.
    """

    first_byte_ms: float = 20.0
    bytes_per_ms: float = 100_000.0
    is_known: bool = False

    def observe(self, first_byte_ms: float, transfer_ms: float, size_bytes: int) -> None:
        """Note a request of `size_bytes` that was served."""
        rate = size_bytes / max(transfer_ms, 0.5)
        if not self.is_known:
            self.first_byte_ms, self.bytes_per_ms, self.is_known = first_byte_ms, rate, True
            return
        is_faster = first_byte_ms < self.first_byte_ms
        self.first_byte_ms += (BELIEF_IN_GOOD if is_faster else BELIEF_IN_BAD) * (
            first_byte_ms - self.first_byte_ms
        )
        is_wider = rate > self.bytes_per_ms
        self.bytes_per_ms += (BELIEF_IN_GOOD if is_wider else BELIEF_IN_BAD) * (
            rate - self.bytes_per_ms
        )

    def load_ms(self, size_bytes: int) -> float:
        """Expected duration of a load of that size."""
        return self.first_byte_ms + size_bytes / max(self.bytes_per_ms, 1.0)


@dataclass(frozen=True, slots=True)
class Pace:
    """State of a sequential reader.

    Attributes:
        streak: Answers in a row; 0 for a new reader.
        depth: Chunks beyond the last answer that should be cached or being loaded.
        read_bytes: Bytes of all answers in a row.
        answer_bytes, answer_ms: Size of its answers, and time between them: moving averages.
        calm_bytes: Bytes since its last wait, or since the last change of the depth.
        answered_ms: Time of its last answer.
    """

    streak: int = 0
    depth: int = 0
    read_bytes: int = 0
    answer_bytes: float = 0.0
    answer_ms: float = 1.0
    calm_bytes: int = 0
    answered_ms: int = 0


def after_answer(
    pace: Pace,
    *,
    now_ms: int,
    waited_ms: int,
    size_bytes: int,
    chunk_bytes: int,
    load_ms: float,
    first_byte_ms: float,
) -> Pace:
    """State of a reader after an answer of `size_bytes`.

    Args:
        pace: State at its request.
        now_ms: On the monotonic clock.
        waited_ms: Time that it waited for bytes of the log.
        size_bytes: Of the answer.
        chunk_bytes: Approximate size of the chunks here.
        load_ms: Expected duration of the load of a chunk.
        first_byte_ms: The part of it before the first byte.
    """
    read_bytes = pace.read_bytes + size_bytes
    if pace.streak == 0:
        return Pace(1, FIRST_DEPTH, read_bytes, answered_ms=now_ms)
    interval_ms = now_ms - pace.answered_ms
    weight = SMOOTHING if pace.streak > 1 else 1.0
    answer_bytes = pace.answer_bytes + weight * (size_bytes - pace.answer_bytes)
    answer_ms = pace.answer_ms + weight * (interval_ms - pace.answer_ms)
    needed = ceil(answer_bytes / max(answer_ms, 0.5) * load_ms / chunk_bytes) + 1
    depth, calm_bytes = max(pace.depth, needed), pace.calm_bytes + size_bytes
    if waited_ms > STALL_SHARE * interval_ms:
        # Requests that wait for their first byte at the same time leave the network idle.
        headroom = 2 + 2 * first_byte_ms / load_ms
        depth, calm_bytes = max(min(2 * pace.depth, ceil(headroom * needed)), needed), 0
    elif calm_bytes > CALM_CHUNKS * chunk_bytes:
        depth, calm_bytes = max(depth - max(1, depth // 4), needed), 0
    depth = min(depth, read_bytes // chunk_bytes + FIRST_DEPTH)
    return replace(
        pace,
        streak=pace.streak + 1,
        depth=depth,
        read_bytes=read_bytes,
        answer_bytes=answer_bytes,
        answer_ms=answer_ms,
        calm_bytes=calm_bytes,
        answered_ms=now_ms,
    )


def bounded_depth(pace: Pace, share_bytes: int, chunk_bytes: int) -> int:
    """The depth within the reader's share of the cache; at least one chunk."""
    return max(1, min(pace.depth, share_bytes // max(1, chunk_bytes)))


def run_chunks(depth: int, readers: int) -> int:
    """Number of adjacent chunks in one request.

    Args:
        depth: Of the reader.
        readers: Sequential readers at this time, this one included: their requests run in parallel.
    """
    longest = min(RUN_CHUNKS_MAX, (depth + 1) // 2)
    return max(1, min(longest, depth * readers // PARALLEL_REQUESTS))
