"""The state of many partitions is made in slices that do not grow with them.

Slices are counted, not timed: what is looked at between two of them costs some microseconds each.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import pytest

from broker.observe.console.facts import CommittedFacts, GroupFacts, PartitionFacts
from broker.observe.console.history import History
from broker.observe.console.selection import Activity
from broker.observe.console.state import describe
from tests.support.console.source import ListedSource, log_of

T = TypeVar("T")
MOST = 300
"""Of a slice: offsets are the cheapest, and 150 of them are 3,000 microseconds' work."""


class CountingSource(ListedSource):
    """Counts what is looked at, and finds a partition's end as a broker does."""

    seen = 0

    def _counted(self, facts: Iterable[T]) -> Iterator[T]:
        for one in facts:
            self.seen += 1
            yield one

    def partitions(self) -> Iterator[PartitionFacts]:
        return self._counted(self.all_partitions)

    def groups(self) -> Iterator[GroupFacts]:
        return self._counted(self.all_groups)

    def committed(self) -> Iterator[CommittedFacts]:
        return self._counted(self.offsets)

    def committed_end(self, topic: str, partition: int) -> int:
        return 100


def looked_at_by_slices(source: CountingSource) -> list[int]:
    steps, found = describe(source, Activity(), History(), 0), []
    for _ in steps:
        found.append(source.seen)
        source.seen = 0
    return [*found, source.seen]


@pytest.mark.parametrize("count", [3_000, 20_000])
@pytest.mark.parametrize("kind", ["partitions", "offsets", "groups"])
def test_no_slice_grows_with_what_there_is(kind: str, count: int) -> None:
    source = CountingSource()
    if kind == "partitions":
        source.all_partitions = [log_of(f"t{n % 60}", n, problem="ill") for n in range(count)]
    elif kind == "offsets":
        source.offsets = [CommittedFacts(f"g{n}", "t", 0, 50) for n in range(count)]
    else:
        source.all_groups = [GroupFacts(f"g{n}", "Empty", 0, 0) for n in range(count)]
    found = looked_at_by_slices(source)
    assert max(found) <= MOST
    assert len(found) >= min(count, 10_000) // MOST


def test_a_slice_has_fewer_groups_of_many_offsets() -> None:
    """Their offsets are counted when a group is looked at."""
    source = CountingSource(all_groups=[GroupFacts(f"g{n}", "Empty", 0, 8_000) for n in range(30)])
    assert max(looked_at_by_slices(source)) <= 3


def test_the_last_slice_has_no_partition_in_it() -> None:
    """It makes what is left: some hundred brokers, voters and rates."""
    source = CountingSource([log_of("t", n) for n in range(10)])
    assert looked_at_by_slices(source)[-1] == 0
