"""The JSON value of a page: made of facts in slices, bounded for any number of partitions. Pure.

Names of topics, groups and hosts come from clients: each is cut to `TEXT_MAX` characters and has
its lone surrogates replaced. Nothing else of it is changed; the page shows it as text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Any, Final, NamedTuple

from broker.observe.console.facts import (
    BrokerFacts,
    GroupFacts,
    PartitionFacts,
    QuorumFacts,
    Source,
    TierFacts,
    with_lag,
)
from broker.observe.console.history import History
from broker.observe.console.selection import Activity, Place, Selection
from broker.observe.health import Cause, by_cause
from runtime.work import Pace, Steps

TEXT_MAX: Final = 250
REASON_MAX: Final = 1_000
REASONS_MAX: Final = 50
BROKERS_MAX: Final = 100
GROUPS_MAX: Final = 100
GROUPS_SEEN_MAX: Final = 2_000
OFFSETS_SEEN_MAX: Final = 10_000
MARKS_MAX: Final = 8
"""Groups that are drawn on one partition: those with the largest lag."""

_PARTITION_WORK: Final = 30
OFFSET_WORK: Final = 20
_GROUP_WORK: Final = 10
_JSON_WORK: Final = 40
"""Units of `Pace` for one of them, some microseconds each."""


class Mark(NamedTuple):
    """A group's position in a partition; lag -1: the end of the partition is not known."""

    group: str
    offset: int
    lag: int


@dataclass(slots=True)
class Lags:
    """Committed offsets, as far as they were read.

    Attributes:
        marks: By partition.
        by_group: Records that a group has not read, and the number of partitions with a known lag.
        is_whole: All offsets were read.
    """

    marks: dict[Place, list[Mark]] = field(default_factory=dict)
    by_group: dict[str, tuple[int, int]] = field(default_factory=dict)
    is_whole: bool = True

    def of_group(self, group_id: str) -> tuple[int, int]:
        """Its lag, -1 where none is known, and the number of partitions with a known lag."""
        return self.by_group.get(group_id, (-1, 0))

    def largest(self, place: Place) -> int:
        """The largest lag on a partition; -1 where none is known."""
        marks = self.marks.get(place)
        return max(mark.lag for mark in marks) if marks else -1


@dataclass(slots=True)
class Sums:
    """Totals of all partitions, shown or not."""

    partitions: int = 0
    led: int = 0
    tiered: int = 0
    ill: int = 0
    local_bytes: int = 0

    def add(self, found: PartitionFacts) -> None:
        """Add one partition."""
        self.partitions += 1
        self.led += found.is_led
        self.tiered += found.is_tiered
        self.ill += bool(found.problem)
        self.local_bytes += found.size_bytes


def shown(text: str, most: int = TEXT_MAX) -> str:
    """Return a client's text, cut, and without characters that cannot be encoded."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return cut.encode("utf-8", "replace").decode()


def describe(
    source: Source, activity: Activity, history: History, now_ms: int
) -> Steps[dict[str, Any]]:
    """Make the value, except for health.

    Args:
        source: The node.
        activity: Of the looks before this one; this one is noted in it.
        history: The last five minutes.
        now_ms: Monotonic.
    """
    pace = Pace()
    lags = yield from _lags(source, pace)
    sums, selection = Sums(), Selection()
    activity.begin()
    for found in source.partitions():
        sums.add(found)
        changed_ms = activity.note(found, now_ms)
        selection.add(found, lags.largest((found.topic, found.partition)), changed_ms)
        if pace.is_step_over(_PARTITION_WORK):
            yield
    activity.end()
    partitions = []
    for found in selection.chosen():
        marks = lags.marks.get((found.topic, found.partition), ())
        partitions.append(_partition(found, marks))
        if pace.is_step_over(_JSON_WORK):
            yield
    groups = yield from _groups(source, lags, pace)
    yield  # the rest is small, and together one slice
    brokers = list(islice(source.brokers(), BROKERS_MAX + 1))
    return {
        "sums": {
            "partitions": sums.partitions,
            "led": sums.led,
            "tiered": sums.tiered,
            "ill": sums.ill,
            "local_bytes": sums.local_bytes,
        },
        "partitions": partitions,
        "more_partitions": sums.partitions - len(partitions),
        **groups,
        "offsets_are_whole": lags.is_whole,
        "brokers": [_broker(one) for one in brokers[:BROKERS_MAX]],
        "more_brokers": len(brokers) > BROKERS_MAX,
        "quorum": _quorum(source.quorum()),
        "tier": _tier(source.tier()),
        "rates": history.rates(),
        "increases": history.increases(),
    }


def _lags(source: Source, pace: Pace) -> Steps[Lags]:
    lags = Lags()
    for number, (found, lag) in enumerate(with_lag(source)):
        if number >= OFFSETS_SEEN_MAX:
            lags.is_whole = False
            break
        mark = Mark(shown(found.group_id), found.offset, lag)
        lags.marks.setdefault((found.topic, found.partition), []).append(mark)
        if lag >= 0:
            before, partitions = lags.by_group.get(found.group_id, (0, 0))
            lags.by_group[found.group_id] = before + lag, partitions + 1
        if pace.is_step_over(OFFSET_WORK):
            yield
    return lags


def _groups(source: Source, lags: Lags, pace: Pace) -> Steps[dict[str, Any]]:
    """Groups with members and the largest lag first."""
    seen: list[GroupFacts] = []
    more = 0
    for found in source.groups():
        if len(seen) < GROUPS_SEEN_MAX:
            seen.append(found)
        else:
            more += 1
        if pace.is_step_over(_GROUP_WORK + found.offsets // 8):
            yield

    def place(one: GroupFacts) -> tuple[bool, int, str]:
        return not one.members, -lags.of_group(one.group_id)[0], shown(one.group_id)

    seen.sort(key=place)
    return {
        "groups": [
            {
                "group": shown(one.group_id),
                "state": shown(one.state),
                "members": one.members,
                "offsets": one.offsets,
                "lag": lags.of_group(one.group_id)[0],
                "lag_partitions": lags.of_group(one.group_id)[1],
            }
            for one in seen[:GROUPS_MAX]
        ],
        "more_groups": more + max(len(seen) - GROUPS_MAX, 0),
    }


def _partition(found: PartitionFacts, marks: Sequence[Mark]) -> dict[str, Any]:
    drawn = nsmallest(MARKS_MAX, marks, key=lambda one: (-one.lag, one.group))
    return {
        "topic": shown(found.topic),
        "partition": found.partition,
        "internal": found.is_internal,
        "led": found.is_led,
        "leader": found.leader,
        "replicas": found.replicas,
        "isr": found.isr,
        "tiered": found.is_tiered,
        "log_start": found.log_start,
        "local_start": found.local_start,
        "copied_end": found.copied_end,
        "committed_end": found.committed_end,
        "log_end": found.log_end,
        "size_bytes": found.size_bytes,
        "problem": shown(found.problem, REASON_MAX),
        "lag": max((one.lag for one in marks), default=-1),
        "groups": [{"group": one.group, "offset": one.offset, "lag": one.lag} for one in drawn],
        "more_groups": len(marks) - len(drawn),
    }


def _broker(found: BrokerFacts) -> dict[str, Any]:
    return {
        "id": found.id,
        "endpoints": [shown(one) for one in islice(found.endpoints, MARKS_MAX)],
        "rack": shown(found.rack),
        "fenced": found.fenced,
        "in_controlled_shutdown": found.in_controlled_shutdown,
        "has_tier": found.has_tier,
    }


def _quorum(found: QuorumFacts | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "epoch": found.epoch,
        "leader": found.leader_id,
        "is_leader": found.is_leader,
        "high_watermark": found.high_watermark,
        "voters": [one._asdict() for one in _first(found.voters)],
        "observers": [one._asdict() for one in _first(found.observers)],
    }


def _first(found: Sequence[Any]) -> Iterator[Any]:
    return islice(found, BROKERS_MAX)


def _tier(found: TierFacts | None) -> dict[str, Any] | None:
    return None if found is None else found._asdict()


def health(report: Mapping[str, Any]) -> dict[str, Any]:
    """Make the health part of the value from `Health.report`."""
    causes = by_cause(report["reasons"])
    return {
        "status": report["status"],
        "stage": shown(report["stage"]),
        "reasons": [_reason(one, report) for one in causes[:REASONS_MAX]],
        "more_reasons": max(len(causes) - REASONS_MAX, 0),
        "notes": [shown(line, REASON_MAX) for line in report["notes"][:REASONS_MAX]],
        "parts": dict(report["parts"]),
    }


def _reason(cause: Cause, report: Mapping[str, Any]) -> dict[str, str]:
    part, _, text = cause.text.partition(": ")
    return {
        "part": part,
        "status": report["parts"].get(part, "red"),
        "text": shown(text, REASON_MAX),
        "remedy": report["remedies"].get(cause.reason, ""),
    }
