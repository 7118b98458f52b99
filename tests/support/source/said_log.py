"""A tiered log whose answers a test says, for decisions that need no bytes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_protocol.types import TopicPartition
from pipeline.cluster.cluster import UnknownTopicError
from pipeline.values import Isolation, OffsetRange, Plan, PlanFacts, Source, Split, SplitLimits


@dataclass
class SaidLog:
    """Partitions with `[start, end)`; one split a range.

    Attributes:
        times_ms: time of the first offset of each partition; one millisecond an offset.
        asked: how often each question came.
        facts: of each plan.
    """

    held: dict[TopicPartition, tuple[int, int]]
    times_ms: dict[TopicPartition, int] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    facts: PlanFacts = PlanFacts()  # noqa: RUF009 - a value
    is_open: bool = True

    @property
    def source(self) -> Source:
        return Source(None, None, "", Isolation.READ_UNCOMMITTED, fail_on_data_loss=True)

    def topics(self) -> list[str]:
        self.asked["topics"] += 1
        return sorted({one.topic for one in self.held})

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        self.asked["partitions"] += 1
        wanted = set(topics)
        missing = sorted(wanted - {one.topic for one in self.held})
        if missing:
            raise UnknownTopicError(f"there is no topic {missing[0]!r}")
        return sorted(one for one in self.held if one.topic in wanted)

    def topic_id(self, topic: str) -> bytes:
        return bytes(16)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked["earliest"] += 1
        return {one: self.held[one][0] for one in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked["latest"] += 1
        return {one: self.held[one][1] for one in partitions}

    def remote_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.held[one][0] for one in partitions}

    def epochs_before(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(offsets)

    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        self.asked["offsets_at"] += 1
        found: dict[TopicPartition, int | None] = {}
        for one, time_ms in times_ms.items():
            start, end = self.held[one]
            offset = max(start, start + time_ms - self.times_ms.get(one, 0))
            found[one] = offset if offset < end else None
        return found

    def plan(self, ranges: Mapping[TopicPartition, OffsetRange], limits: SplitLimits) -> Plan:
        self.asked["plan"] += 1
        self.planned = dict(ranges)
        self.limits = limits
        return Plan(tuple(Split(one, (), 0) for one in sorted(ranges)), self.facts)

    def close(self) -> None:
        self.is_open = False
