"""Which partitions a page shows where there are more than it can draw. Pure.

The first are those that a person should look at: ill ones, then those with the largest lag of a
group, then those that changed last; topics that brokers make for themselves come last.
"""

from typing import Final, TypeAlias

from broker.observe.console.facts import PartitionFacts

PARTITIONS_MAX: Final = 500
"""Of a page."""

_CHANGES_MS: Final = 10_000
"""Changes within such a time count as one: the choice would be another one each second."""

Place: TypeAlias = tuple[str, int]
Rank: TypeAlias = tuple[bool, int, bool, int, str, int]


class Activity:
    """When each partition was last seen to change: looks are compared, nothing is counted.

    It keeps one number and one time a partition, of those that the last look has seen.
    """

    def __init__(self) -> None:
        self._seen: dict[Place, tuple[tuple[int, int, int], int]] = {}
        self._now: dict[Place, tuple[tuple[int, int, int], int]] = {}

    def begin(self) -> None:
        """Begin to look at all partitions; those that are not noted until the end are forgotten."""
        self._now = {}

    def note(self, found: PartitionFacts, now_ms: int) -> int:
        """Return when the partition has changed (monotonic); -1 where no change was seen."""
        place = (found.topic, found.partition)
        mark = (found.log_end, found.copied_end, found.log_start)
        known = self._seen.get(place)
        if known is None:
            changed_ms = -1
        else:
            changed_ms = known[1] if known[0] == mark else now_ms
        self._now[place] = (mark, changed_ms)
        return changed_ms

    def end(self) -> None:
        """All partitions are noted."""
        self._seen, self._now = self._now, {}


def rank(found: PartitionFacts, lag: int, changed_ms: int) -> Rank:
    """Return the place of a partition in the order: lower comes first; no two are equal.

    Args:
        found: the partition.
        lag: the largest of a group, in records; -1 where none reads it.
        changed_ms: as `Activity.note` returns it.
    """
    return (
        not found.problem,
        -max(lag, 0),
        found.is_internal,
        -(changed_ms // _CHANGES_MS),
        found.topic,
        found.partition,
    )


def _shown_at(found: PartitionFacts) -> tuple[bool, bool, str, int]:
    return not found.problem, found.is_internal, found.topic, found.partition


class Selection:
    """Keeps the first of all that it is given; never more than twice as many at a time."""

    def __init__(self, most: int = PARTITIONS_MAX) -> None:
        self._most = most
        self._kept: list[tuple[Rank, PartitionFacts]] = []

    def add(self, found: PartitionFacts, lag: int, changed_ms: int) -> None:
        """Consider a partition."""
        self._kept.append((rank(found, lag, changed_ms), found))
        if len(self._kept) >= 2 * self._most:
            self._cut()

    def _cut(self) -> None:
        self._kept.sort(key=lambda one: one[0])
        del self._kept[self._most :]

    def chosen(self) -> list[PartitionFacts]:
        """The first ones: ill ones, then by topic and partition."""
        self._cut()
        return sorted((found for _, found in self._kept), key=_shown_at)
