"""Which offsets `tidemark groups reset` gives a group: the ways of Kafka's tool (KIP-122). Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_client.blocking import ClusterError
from kafka_protocol.types import TopicPartition

_TOPIC: Final = re.compile(r"(?P<topic>[^:]+)(?::(?P<numbers>\d+(?:,\d+)*))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Facts:
    """The known offsets of the partitions; offsets by partition, ends exclusive."""

    committed: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class Earliest(NamedTuple):
    """`--to-earliest`: the start of the log."""


class Latest(NamedTuple):
    """`--to-latest`: the end of the log."""


class Current(NamedTuple):
    """`--to-current`: what is committed; the end of the log where nothing is."""


class To(NamedTuple):
    """`--to-offset`: this offset, brought within the log."""

    offset: int


class Shift(NamedTuple):
    """`--shift-by`: so many offsets on, or back, from what is committed; within the log."""

    by: int


class Since(NamedTuple):
    """`--to-datetime`, `--by-duration`: the first record at or after a time, else the end.

    Attributes:
        offsets: of those partitions that have such a record.
    """

    offsets: Mapping[TopicPartition, int]


Way = Earliest | Latest | Current | To | Shift | Since


class Planned(NamedTuple):
    """The offset that a partition gets.

    Attributes:
        current: what is committed now; None: nothing.
    """

    partition: TopicPartition
    current: int | None
    new: int
    end: int


def planned(way: Way, partitions: Iterable[TopicPartition], facts: Facts) -> list[Planned]:
    """Say what each partition gets.

    Args:
        way: how it is chosen.
        partitions: each once.
        facts: of all of them.

    Returns:
        A plan for each, by name.

    Raises:
        ClusterError: one of them has no leader, or nothing is committed that could be shifted.
    """
    plan = []
    for one in sorted(partitions):
        if one not in facts.starts or one not in facts.ends:
            raise ClusterError(f"{one} has no leader now; nothing was changed")
        start, end, current = facts.starts[one], facts.ends[one], facts.committed.get(one)
        plan.append(Planned(one, current, _new(way, one, start, end, current), end))
    return plan


def _new(way: Way, one: TopicPartition, start: int, end: int, current: int | None) -> int:
    match way:
        case Earliest():
            return start
        case Latest():
            return end
        case Current():
            return end if current is None else current
        case To(offset):
            return min(max(offset, start), end)
        case Shift(by):
            if current is None:
                raise ClusterError(
                    f"{one} cannot be shifted: nothing is committed there; nothing was changed"
                )
            return min(max(current + by, start), end)
        case Since(offsets):
            return offsets.get(one, end)


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Read `TOPIC` or `TOPIC:0,1`; None: all partitions.

    Raises:
        ValueError: it is neither.
    """
    found = _TOPIC.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r}: must be TOPIC, or TOPIC:0,1")
    numbers = found["numbers"]
    return found["topic"], tuple(map(int, numbers.split(","))) if numbers else None
