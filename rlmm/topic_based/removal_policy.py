"""Decides by topic id in the cluster if the remote data of a partition may be deleted.

Pure. Only a removal that was *read* in the committed metadata log of this cluster permits deletion.
The absence of an id from an image proves nothing: the image may be of an earlier time, or of
another log. An id is never reused, so a removal that was read stays true in that log. But the log
may be replaced by an earlier copy of it, so the image is read again before each irreversible step.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kafka_protocol.wire.primitives import uuid_to_text
from rlmm.api import PartitionDeletion
from runtime.health_reasons import HealthReason, HealthText

_NAMED_MAX = 20


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The topics in the committed metadata log of a cluster.

    Attributes:
        topic_ids: Ids of the topics that exist (16 raw bytes each).
        removed_ids: Ids of tiered topics whose removal was read, until nothing is left of them.
        cluster_id: The cluster of the log.
        removals_are_listed: The controllers keep a list of removed ids. So an id that neither
            exists nor was removed is never an ordinary one. Controllers of Apache Kafka keep none.
    """

    topic_ids: frozenset[bytes]
    removed_ids: frozenset[bytes]
    cluster_id: str
    removals_are_listed: bool = True


class Standing(Enum):
    """State of a partition's topic in the cluster."""

    LIVING = "living"
    REMOVED = "removed"
    MARKED_BUT_EXISTS = "marked, but exists"
    MISSING = "unknown, as may be"
    UNKNOWN = "unknown"


def standing_of(known: PartitionDeletion, image: ClusterImage) -> Standing:
    """The standing of a partition by the image; only REMOVED permits deletion."""
    topic_id = known.partition.topic_id
    if topic_id in image.topic_ids:
        return Standing.LIVING if known.state is None else Standing.MARKED_BUT_EXISTS
    if topic_id in image.removed_ids:
        return Standing.REMOVED
    return Standing.UNKNOWN if image.removals_are_listed else Standing.MISSING


def text_of(standing: Standing, known: PartitionDeletion) -> HealthText:
    """The health reason of a partition that is neither used nor deleted; by topic id."""
    topic_id = uuid_to_text(known.partition.topic_id)
    topic = f"topic {known.partition.topic} (id {topic_id})"
    match standing:
        case Standing.MARKED_BUT_EXISTS:
            return HealthReason.MARKED_BUT_EXISTS.text(topic=topic)
        case Standing.MISSING:
            return HealthReason.MISSING_TOPIC.text(topic=topic, topic_id=topic_id)
        case _:
            return HealthReason.UNKNOWN_TOPIC.text(topic=topic, topic_id=topic_id)


def first_of(texts: Iterable[HealthText]) -> tuple[HealthText, ...]:
    """The first ones, each once, and the number of the others."""
    lines = tuple(dict.fromkeys(texts))
    more = len(lines) - _NAMED_MAX
    return lines if more <= 0 else (*lines[:_NAMED_MAX], HealthReason.MORE_TOPICS.text(count=more))
