"""Reading to the *present* end of a log: how a reader without a barrier becomes up to date.

"The end was reached" ages: the log grows, and the connection may be lost since. So each waiter gets
an end that the log returned after the call, and is done when all below it was read. Waiters that
come during a request share the next one: hundreds of followed partitions do not send hundreds of
requests.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from rlmm.topic_based.topic_port import TopicPort

ASK_AGAIN_MS = 100
LATE_MS = 60_000
"""After this time without an end, health reports it."""


@dataclass(slots=True, eq=False)
class EndRead:
    """One waiter.

    Attributes:
        of: Its owner; the waiter is dropped with it.
        reached: Called once, when all below `end` was read.
        end: Exclusive; None while the log has not returned it.
        since_ms: Time of the first request; -1 before.
    """

    of: object
    reached: Callable[[], None]
    end: int | None = None
    since_ms: int = -1


class EndReads:
    """The waiters of one metadata partition; not thread-safe.

    Attributes:
        waits_since_ms: Of the longest waiter without an end, at the last call of `ask`; None: all
            have one. Any thread may read it.
    """

    __slots__ = ("_ask_again_ms", "_question", "_reads", "waits_since_ms")

    def __init__(self) -> None:
        self._reads: dict[int, list[EndRead]] = {}  # by identity of their owner
        self._ask_again_ms = 0
        self._question: list[EndRead] | None = None  # waiters of the running request
        self.waits_since_ms: int | None = None

    def __bool__(self) -> bool:
        return bool(self._reads)

    def want(self, of: object, reached: Callable[[], None]) -> None:
        """Add a waiter."""
        self._reads.setdefault(id(of), []).append(EndRead(of, reached))

    def drop(self, of: object) -> None:
        """Drop the waiters of an owner."""
        self._reads.pop(id(of), None)

    def start_over(self) -> None:
        """The log was truncated: no earlier end counts, nor one that is requested now."""
        for of, reads in self._reads.items():
            self._reads[of] = [EndRead(read.of, read.reached) for read in reads]
        self._ask_again_ms, self._question = 0, None

    def ask(self, port: TopicPort, number: int, position: int, now_ms: int) -> None:
        """Request an end for the waiters without one, one request at a time.

        An end below `position`, which a new leader may return for a moment, proves nothing; it is
        requested again.
        """
        waiting = [read for read in self._all() if read.end is None]
        for read in waiting:
            read.since_ms = now_ms if read.since_ms < 0 else read.since_ms
        self.waits_since_ms = min((read.since_ms for read in waiting), default=None)
        if not waiting or self._question is not None or now_ms < self._ask_again_ms:
            return
        self._question = waiting

        def answered(end: int | None) -> None:
            if self._question is not waiting:
                return  # the log was truncated since
            self._question = None
            known = end if end is not None and end >= position else None
            if known is None:
                self._ask_again_ms = now_ms + ASK_AGAIN_MS
            for read in waiting:
                read.end = known

        port.ask_end(number, answered)

    def take_reached(self, position: int) -> list[EndRead]:
        """Remove and return the waiters whose end is reached; `position` is the next to read."""
        done, left = list[EndRead](), dict[int, list[EndRead]]()
        for read in self._all():
            if read.end is not None and read.end <= position:
                done.append(read)
            else:
                left.setdefault(id(read.of), []).append(read)
        if done:
            self._reads = left
        return done

    def _all(self) -> Iterator[EndRead]:
        return chain.from_iterable(self._reads.values())
