"""How far a consumer is: which records it takes, and when it has all. Pure."""

from collections.abc import Collection, Mapping


class Ahead:
    """The offsets that are still to be taken of some partitions.

    Attributes:
        taken: so many records so far.
    """

    def __init__(self, count_max: int | None) -> None:
        """Begin: no partition is known yet.

        Args:
            count_max: so many records are enough; None: there is no limit.
        """
        self._ends: dict[int, int | None] | None = None
        self._count_max = count_max
        self.taken = 0

    def assigned(self, ends: Mapping[int, int | None] | None) -> None:
        """These partitions are read, in place of those before; what was taken stays counted.

        Args:
            ends: by partition: the offset to end at (exclusive), or None: never. None for all: it
                is not known which partitions there are.
        """
        self._ends = None if ends is None else dict(ends)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to take."""
        return self._ends == {} or self.taken == self._count_max

    @property
    def partitions(self) -> Collection[int]:
        """Those of which something is left to take."""
        return self._ends or ()

    def takes(self, partition: int, offset: int) -> bool:
        """Whether a record is one of those; counts it."""
        if self._ends is None or partition not in self._ends or self.is_done:
            return False
        end = self._ends[partition]
        if end is not None and offset >= end - 1:
            del self._ends[partition]
        if end is not None and offset >= end:
            return False
        self.taken += 1
        return True

    def is_short(self, partition: int, offset: int) -> bool:
        """Whether an offset (the next one to read) is below the end that a partition is read to."""
        end = None if self._ends is None else self._ends.get(partition)
        return end is not None and offset < end

    def reached(self, partition: int) -> None:
        """The log of a partition ends here for now: all that it hands out before its end is taken.

        The last offsets may hold nothing that is handed out: they are markers of transactions,
        aborted or compacted away; or an open transaction holds a reader of committed records.
        """
        if self._ends is not None and self._ends.get(partition) is not None:
            del self._ends[partition]
