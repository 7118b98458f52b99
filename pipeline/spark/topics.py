"""Which partitions a query reads, found again for each batch. Must not know: Arrow, Spark."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafka_protocol.types import TopicPartition
from pipeline.cluster.cluster import UnknownTopicError
from pipeline.errors import OptionError
from pipeline.log import TieredLog
from pipeline.spark.options import Topics

_INTERNAL: Final = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
        "__cluster_metadata",
    }
)
"""A pattern finds none of these; whoever wants one names it."""


@dataclass(frozen=True, slots=True)
class Found:
    """Partitions that are there now, sorted, and what of the wanted is not."""

    partitions: list[TopicPartition]
    missing: tuple[str, ...] = ()


def find(log: TieredLog, topics: Topics) -> Found:
    """Ask which of the wanted partitions are there; what is missing is told, not raised."""
    if topics.pattern is not None:
        matches = [
            name
            for name in log.topics()
            if topics.pattern.fullmatch(name) and name not in _INTERNAL
        ]
        return Found(_of_topics(log, matches)[0])
    names = topics.subscribed or sorted({one.topic for one in topics.assigned})
    partitions, missing = _of_topics(log, names)
    if topics.assigned:
        there = set(partitions)
        gone = [one for one in topics.assigned if one not in there and one.topic not in missing]
        partitions = [one for one in topics.assigned if one in there]
        missing += [str(one) for one in gone]
    return Found(partitions, tuple(missing))


def find_all(log: TieredLog, topics: Topics) -> list[TopicPartition]:
    """The wanted partitions, all of them.

    Raises:
        UnknownTopicError: a topic is not there; names the nearest.
        OptionError: a topic has no such partition.
    """
    found = find(log, topics)
    if found.missing:
        log.partitions(topics.subscribed or {one.topic for one in topics.assigned})
        raise OptionError(
            f"option assign names partitions that are not there: {', '.join(found.missing[:5])}"
        )
    return found.partitions


def _of_topics(log: TieredLog, names: Iterable[str]) -> tuple[list[TopicPartition], list[str]]:
    wanted = list(names)
    try:
        return log.partitions(wanted) if wanted else [], []
    except UnknownTopicError:
        there = set(log.topics())
        left = [one for one in wanted if one in there]
        gone = [one for one in wanted if one not in there]
        return (log.partitions(left) if left else []), gone
