"""How far to load ahead of a reader, and in how large pieces. Pure.

A reader that continues is served without waiting if so much is on its way as it will want within
the time that one load takes: its rate times that time. What a reader wants is not known while it
has to wait. So whoever waits gets a multiple of the product, which lets its rate, and with it the
product, grow; whoever does not gets slowly less again, but not less than the product. Where it is
not the store's latency that holds a reader up, the product stays small, and so does what lies in
memory unread.

Never is more loaded ahead than the reader has read in a row: one that ends early wastes at most as
much again. Far ahead, several chunks are asked for in one request: a request costs the processor
about a millisecond however little it brings.
"""

from dataclasses import dataclass, replace
from math import ceil

SMOOTHING = 0.25
"""Weight of the newest answer in what is known of a reader."""

BELIEF_IN_GOOD, BELIEF_IN_BAD = 0.5, 0.02
"""Weight of the newest load in what is known of the store, if it is a better or a worse one."""

STALL_SHARE = 0.05
"""A reader that spent a larger part of its time waiting for us than this is held up by us."""

FIRST_DEPTH = 2
CALM_CHUNKS = 32
"""After so many chunks without a wait the depth shrinks by a quarter."""

PARALLEL_REQUESTS = 4
"""With so many requests at a time, what is ahead grows by longer ones, until those are longest."""

RUN_CHUNKS_MAX = 4


@dataclass(slots=True)
class StoreEstimate:
    """What the store can do for one request that has it to itself, from the loads that were made.

    Better figures are believed at once and worse ones slowly: what a load takes while many others
    run beside it tells of them, and would call for still more of them.

    Attributes:
        first_byte_ms: from asking to the first byte.
        bytes_per_ms: of one request, after that.
        is_known: a load was made; before, both are guesses.
    """

    first_byte_ms: float = 20.0
    bytes_per_ms: float = 100_000.0
    is_known: bool = False

    def observe(self, first_byte_ms: float, transfer_ms: float, size_bytes: int) -> None:
        """A request of `size_bytes` was served."""
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
        """How long a load of that size probably takes."""
        return self.first_byte_ms + size_bytes / max(self.bytes_per_ms, 1.0)


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known of a reader that continues.

    Attributes:
        streak: answers in a row; 0 for somebody who has just come.
        depth: chunks beyond the last answer that should be here or on their way.
        read_bytes: of all answers in a row.
        answer_bytes, answer_ms: size of its answers, and time between them: moving averages.
        calm_bytes: since it last had to wait or the depth was changed.
        answered_ms: when it got the last answer.
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
    """What is known of a reader that gets an answer of `size_bytes` now.

    Args:
        pace: what was known when it asked.
        now_ms: on the monotonic clock.
        waited_ms: how long it waited for bytes of the log.
        size_bytes: of the answer.
        chunk_bytes: about the size of the chunks here.
        load_ms: how long the load of a chunk takes.
        first_byte_ms: the part of it in which nothing comes.
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
        # Requests that wait for their first byte at the same time leave the line idle.
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
    """How many adjacent chunks to ask for in one request.

    Args:
        depth: of the reader that they are for.
        readers: of the same kind at this time, this one included: their requests run side by side.
    """
    longest = min(RUN_CHUNKS_MAX, (depth + 1) // 2)
    return max(1, min(longest, depth * readers // PARALLEL_REQUESTS))
