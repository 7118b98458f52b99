"""Budget of file descriptors on brokers, so that new partitions do not exhaust them.

A report covers the replicas up to the metadata offset that it names. Replicas placed later are
subtracted here until a later report covers them, so many creations between two heartbeats do not
take the same descriptors. A broker that reports nothing (Apache Kafka, say) has no bound.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from metadata_topic.controller.errors import PolicyViolationError

NOT_REPORTED: Final = -1


class FreeDescriptors:
    """Number of files that one incarnation of a broker may still open."""

    __slots__ = ("_metadata_offset", "_placed", "_reported")

    def __init__(self) -> None:
        """Begin without a report."""
        self._reported = self._metadata_offset = NOT_REPORTED
        self._placed: list[tuple[int, int]] = []

    def report(self, count: int, metadata_offset: int) -> None:
        """Take a report; one with a lower metadata offset than the last is ignored.

        Args:
            count: Files the broker may open before it uses its reserve; NOT_REPORTED: no bound.
            metadata_offset: Replicas placed up to here (inclusive) are included in `count`.
        """
        if metadata_offset < self._metadata_offset:
            return
        self._reported, self._metadata_offset = count, metadata_offset
        self._placed = [one for one in self._placed if one[0] > metadata_offset]

    def place(self, count: int, last_offset: int) -> None:
        """Note replicas that this broker gets by records up to `last_offset` (inclusive)."""
        if last_offset > self._metadata_offset:
            self._placed.append((last_offset, count))

    @property
    def left(self) -> int | None:
        """Number of further replicas, at least 0; None: no bound."""
        if self._reported == NOT_REPORTED:
            return None
        return max(0, self._reported - sum(count for _, count in self._placed))


class DescriptorBudget:
    """Descriptors that one decision may take, by broker.

    Attributes:
        taken: So far, by broker id; includes brokers without a bound.
    """

    def __init__(self, left: Mapping[int, int]) -> None:
        """Begin with `left` by broker id; a broker that is not in it has no bound."""
        self._left = left
        self.taken: Counter[int] = Counter()

    def take(self, replicas: Sequence[tuple[int, ...]]) -> None:
        """Take one descriptor for each replica of a topic's new partitions.

        Raises:
            PolicyViolationError: A broker has too few; nothing was taken.
        """
        wanted = Counter(broker_id for each in replicas for broker_id in each)
        for broker_id, count in wanted.items():
            left = self._left.get(broker_id)
            if left is not None and self.taken[broker_id] + count > left:
                raise PolicyViolationError(
                    f"Broker {broker_id} has {max(left - self.taken[broker_id], 0)} descriptors "
                    f"left for files of new partitions, and this topic needs {count} there: let "
                    "it open more files (ulimit -n), close connections, or delete topics."
                )
        self.taken += wanted
