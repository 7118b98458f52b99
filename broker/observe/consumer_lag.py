"""The lag of consumer groups, by group, topic and partition, for the page of metrics.

Only the coordinator of a group reports it: sums over all brokers count nothing twice. Kafka's
brokers have no such metric; the names are those of its exporters (`kafka_consumergroup_lag`).

With any number of committed offsets, the page gets `SHOWN_MAX` partitions of groups and as many
groups: those with the greatest lag. The sum of a group is over all its offsets.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from typing import Final, NamedTuple

from broker.observe.console.facts import Source, with_lag
from broker.observe.console.state import OFFSET_WORK, shown
from runtime.clock import Clock
from runtime.metrics import Labelled, Registry
from runtime.work import Pace, Steps

SHOWN_MAX: Final = 500
FRESH_MS: Final = 1_000
"""The metrics show one look for this long, so that all those of a page are of the same."""

_NAME: Final = "tidemark_consumergroup_lag"

Lags = Mapping[tuple[str, ...], int]
"""Committed records that a group has not read, never negative, by labels."""


class LagsSeen(NamedTuple):
    """The result of a look.

    Attributes:
        by_partition: By group, topic and partition.
        by_group: Over all partitions with a known lag.
        excluded: How many are not in these, by kind.
        unknown: Committed offsets of partitions whose end is not known here.
    """

    by_partition: Lags
    by_group: Lags
    excluded: Lags
    unknown: int


class _Greatest:
    """Keeps the greatest of the given lags; of equal labels the greater one."""

    def __init__(self) -> None:
        self._kept: list[tuple[tuple[str, ...], int]] = []
        self.given = 0

    def add(self, labels: tuple[str, ...], lag: int) -> None:
        self.given += 1
        self._kept.append((labels, lag))
        if len(self._kept) >= 2 * SHOWN_MAX:
            self._kept = self._first()

    def _first(self) -> list[tuple[tuple[str, ...], int]]:
        return nlargest(SHOWN_MAX, self._kept, key=lambda one: one[1])

    def shown(self) -> Lags:
        return dict(reversed(self._first()))


def look(source: Source) -> Steps[LagsSeen]:
    """Read all committed offsets; names are cut and made printable as on the page at `/`."""
    pace, partitions, groups = Pace(), _Greatest(), _Greatest()
    sums: dict[str, int] = {}
    unknown = 0
    for one, lag in with_lag(source):
        if lag < 0:
            unknown += 1
        else:
            sums[one.group_id] = sums.get(one.group_id, 0) + lag
            partitions.add((shown(one.group_id), shown(one.topic), str(one.partition)), lag)
        if pace.is_step_over(OFFSET_WORK):
            yield
    for group_id, total in sums.items():
        groups.add((shown(group_id),), total)
        if pace.is_step_over():
            yield
    by_partition, by_group = partitions.shown(), groups.shown()
    excluded: Lags = {
        ("partitions",): partitions.given - len(by_partition),
        ("groups",): groups.given - len(by_group),
    }
    return LagsSeen(by_partition, by_group, excluded, unknown)


class ConsumerLag:
    """Reads the lags when the page of metrics is made, in slices."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._seen: tuple[int, LagsSeen] | None = None

    def register(self, metrics: Registry) -> None:
        """Register the gauges."""
        of: dict[str, tuple[str, tuple[str, ...], Callable[[LagsSeen], Lags]]] = {
            "": (
                f"Records of a partition that a group has not read: the {SHOWN_MAX} greatest",
                ("group", "topic", "partition"),
                lambda seen: seen.by_partition,
            ),
            "_sum": (
                f"Records that a group has not read, of all partitions: the {SHOWN_MAX} greatest",
                ("group",),
                lambda seen: seen.by_group,
            ),
            "_left_out": (
                "Partitions of groups, and groups, whose lag is too small to be among those shown",
                ("kind",),
                lambda seen: seen.excluded,
            ),
            "_unknown": (
                "Committed offsets of partitions that have no in-sync replica on this broker",
                (),
                lambda seen: {(): seen.unknown},
            ),
        }
        for suffix, (text, labels, part) in of.items():
            metrics.gauge(f"{_NAME}{suffix}", text, labels, self._rows_of(part))

    def _rows_of(self, part: Callable[[LagsSeen], Lags]) -> Callable[[], Iterator[Labelled | None]]:
        def rows() -> Iterator[Labelled | None]:
            now_ms = self._clock.monotonic_ms()
            if self._seen is None or now_ms - self._seen[0] >= FRESH_MS:
                self._seen = now_ms, (yield from look(self._source))
            yield from part(self._seen[1]).items()

        return rows
