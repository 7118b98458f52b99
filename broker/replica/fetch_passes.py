"""The passes of one fetch over its partitions until it is answered.

The first pass reads the partitions that may have news for the client. Later passes read those that
changed meanwhile or were not at their end. A partition that is left out would be read as before,
and brings neither bytes nor errors. So the answer equals that of a pass over all partitions, with
one exception. A partition that is only in the remote tier shares the byte budget with those that
are read.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from broker.replica.fetch_session import FetchContext, order_of
from broker.replica.fetch_types import FetchPartition, PartitionRead
from runtime.work import Steps

FEW_PARTITIONS = 16

SLICE_PARTITIONS = 500
"""After so many the event loop runs other work."""

_order_of_read = attrgetter("fetch.order")


class FetchPasses:
    """The state of one fetch: which of its partitions it has read.

    Args:
        context: The fetch.
        few: Up to so many partitions are all read again, which costs less than to note them.
    """

    __slots__ = (
        "_is_over",
        "_is_parked",
        "_is_watching",
        "_reads",
        "_reads_all",
        "_restless",
        "_seen",
        "context",
    )

    def __init__(self, context: FetchContext, *, few: int = FEW_PARTITIONS) -> None:
        self.context = context
        self._reads_all = context.count <= few
        self._is_parked = self._is_over = False
        self._is_watching = context.has_session  # all that was read
        self._reads: list[PartitionRead] = []  # of the first pass
        self._seen: dict[FetchPartition, PartitionRead] = {}  # once parked: the newest of each
        self._restless: set[FetchPartition] = set()  # once parked: those not at their end

    def due(self) -> Sequence[FetchPartition]:
        """The partitions to read now, in the order of the fetch."""
        context = self.context
        if self._reads_all:
            if self._is_parked:
                context.noted()
                self._reads = []
            return context.all_partitions()
        if not self._is_parked:
            return context.partitions
        return sorted(self._restless | context.noted(), key=order_of)

    def take(self, reads: Sequence[PartitionRead], *, watches: bool = False) -> None:
        """Take the reads of this iteration of the event loop.

        Args:
            reads: In the order of the fetch.
            watches: They are one of several slices: changes of these partitions before the fetch
                is parked must be noted.
        """
        self._is_watching |= watches or self._is_parked
        if self._is_watching:
            self._watch(reads)
        if not self._reads_all and (watches or self._is_parked):
            self._note(reads)
        if self._is_parked and not self._reads_all:
            return
        if self._reads:
            self._reads += reads
        else:
            self._reads = list(reads)

    def park(self) -> None:
        """The fetch waits from now on: later passes read what has changed."""
        if not self._is_watching:
            self._watch(self._reads)
        if not self._reads_all and not self._seen:
            self._note(self._reads)
        self._is_parked = True

    def begin_again(self) -> None:
        """Forget the first pass, which could not be completed."""
        self._reads, self._seen, self._restless = [], {}, set()

    def _watch(self, reads: Sequence[PartitionRead]) -> None:
        add = self.context.watch.add
        for read in reads:
            if read.partition is not None:
                add(read.partition)

    def _note(self, reads: Sequence[PartitionRead]) -> None:
        seen, restless = self._seen, self._restless
        for read in reads:
            seen[read.fetch] = read
            if read.at_end:
                restless.discard(read.fetch)
            else:
                restless.add(read.fetch)

    def answer(self) -> Steps[list[PartitionRead]]:
        """Choose the partitions of the answer, and end the fetch.

        Yields between slices of them.
        """
        chosen: list[PartitionRead] = []
        reads: Sequence[PartitionRead] = self._reads
        if self._seen:
            reads = list(self._seen.values())
            if len(reads) > len(self._reads):  # some were not in the first pass
                reads = sorted(reads, key=_order_of_read)
        for first in range(0, len(reads), SLICE_PARTITIONS):
            if first:
                yield
            chosen += self.context.to_answer(reads[first : first + SLICE_PARTITIONS])
        self._is_over = True
        self.context.end()
        self._forget()
        return chosen

    def leave(self) -> None:
        """Call it at the end: the next fetch must read what was not answered."""
        if not self._is_over:
            self._is_over = True
            to_read: Iterable[FetchPartition] = (read.fetch for read in self._reads)
            if self._reads_all and self._is_parked:  # perhaps in the middle of a pass
                to_read = self.context.all_partitions()
            self.context.end([*self._seen, *to_read])
            self._forget()

    def _forget(self) -> None:
        """Free the reads: a timer may hold this fetch for a while."""
        self._reads, self._seen, self._restless = [], {}, set()
