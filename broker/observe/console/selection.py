"""Chooses the partitions of a page where there are more than it can draw. Pure.

The first are those that need attention: unhealthy ones, then those with the largest lag of a group,
then those that changed last. Topics that brokers make for themselves come last.
"""

from typing import Final, TypeAlias

from broker.observe.console.facts import PartitionFacts

PARTITIONS_MAX: Final = 500
"""Of a page."""

_CHANGES_MS: Final = 10_000
"""Changes within this time rank equal: else the choice would change each second."""

Place: TypeAlias = tuple[str, int]
Rank: TypeAlias = tuple[bool, int, bool, int, str, int]


class Activity:
    """The time of each partition's last change, found by comparing one look with the next.

    It keeps one mark and one time a partition, for those of the last look.
    """

    def __init__(self) -> None:
        self._seen: dict[Place, tuple[tuple[int, int, int], int]] = {}
        self._now: dict[Place, tuple[tuple[int, int, int], int]] = {}

    def begin(self) -> None:
        """Begin a look; partitions that are not noted until its end are forgotten."""
        self._now = {}

    def note(self, found: PartitionFacts, now_ms: int) -> int:
        """Return the time of the last change (monotonic); -1 where no change was seen."""
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
        """End the look: all partitions are noted."""
        self._seen, self._now = self._now, {}


def rank(found: PartitionFacts, lag: int, changed_ms: int) -> Rank:
    """Return the rank of a partition: lower comes first, and no two are equal.

    Args:
        found: The partition.
        lag: The largest of a group, in records; -1 where no group reads it.
        changed_ms: From `Activity.note`.
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
    """Keeps the lowest ranks of all that are added; at most twice as many at a time."""

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
        """The kept ones: unhealthy ones first, then by topic and partition."""
        self._cut()
        return sorted((found for _, found in self._kept), key=_shown_at)
