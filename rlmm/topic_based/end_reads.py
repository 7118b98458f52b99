"""Reading to the end that a log has *now*: how a reader without a barrier is up to date.

"The end was reached" ages: the log grows on, and the connection may be gone since. So each asker
gets an end that the log named after the question, and is done when all below it was read. Askers
that come while the log is being asked share the next question: hundreds of followed partitions do
not ask hundreds of times.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from rlmm.topic_based.topic_port import TopicPort

ASK_AGAIN_MS = 100
LATE_MS = 60_000
"""An end that was not told for so long is a fault that health names."""


@dataclass(slots=True, eq=False)
class EndRead:
    """One asker.

    Attributes:
        of: whose it is, to be dropped with it.
        reached: called once, when all below `end` was read.
        end: None while the log has not been asked, or not answered.
        since_ms: of the first question; -1 before.
    """

    of: object
    reached: Callable[[], None]
    end: int | None = None
    since_ms: int = -1


class EndReads:
    """The askers of one metadata partition; not thread-safe.

    Attributes:
        waits_since_ms: of the asker that has waited longest for an end, when `ask` was called
            last; None: all have one. Any thread may look.
    """

    __slots__ = ("_ask_again_ms", "_question", "_reads", "waits_since_ms")

    def __init__(self) -> None:
        self._reads: dict[int, list[EndRead]] = {}  # by identity of whose they are
        self._ask_again_ms = 0
        self._question: list[EndRead] | None = None  # whose question is under way
        self.waits_since_ms: int | None = None

    def __bool__(self) -> bool:
        return bool(self._reads)

    def want(self, of: object, reached: Callable[[], None]) -> None:
        """One more asker."""
        self._reads.setdefault(id(of), []).append(EndRead(of, reached))

    def drop(self, of: object) -> None:
        """Its askers want nothing any more."""
        self._reads.pop(id(of), None)

    def start_over(self) -> None:
        """The log was cut: no end that it named before counts, nor one that is under way."""
        for of, reads in self._reads.items():
            self._reads[of] = [EndRead(read.of, read.reached) for read in reads]
        self._ask_again_ms, self._question = 0, None

    def ask(self, port: TopicPort, number: int, position: int, now_ms: int) -> None:
        """Ask for those that have no end yet, one question at a time.

        An end below `position`, as a new leader may name for a moment, proves nothing: it is asked
        for again.
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
                return  # the log was cut since
            self._question = None
            known = end if end is not None and end >= position else None
            if known is None:
                self._ask_again_ms = now_ms + ASK_AGAIN_MS
            for read in waiting:
                read.end = known

        port.ask_end(number, answered)

    def take_reached(self, position: int) -> list[EndRead]:
        """Those for whom all is read: `position` is the next offset to read."""
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
