"""Whether the remote data of a partition may go: what the cluster says of its topic id.

Pure. Only a removal that was *read* in the committed metadata log of the own cluster lets data go.
That an id is absent from an image proves nothing: the image may be of an earlier time, or of
another log. An id never comes back, so a removal that was read stays true in that log; but the log
may be replaced by an earlier copy of it, so it is read again before each step that cannot be taken
back.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kafka_protocol.wire.primitives import uuid_to_text
from rlmm.api import PartitionDeletion
from rlmm.red import RedKind, RedText

_NAMED_MAX = 20


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """What the committed metadata log of a cluster says of topics.

    Attributes:
        topic_ids: of the topics that exist (16 raw bytes each).
        removed_ids: of tiered topics whose removal was read, until nothing is left of them.
        cluster_id: whose log it is.
    """

    topic_ids: frozenset[bytes]
    removed_ids: frozenset[bytes]
    cluster_id: str


class RemovalRed(RedKind):
    """What the remover finds that only a person can settle."""

    MARKED_BUT_EXISTS = (
        "{topic} was being deleted, and exists: the cluster metadata are of an earlier time. "
        "Nothing of it is copied or deleted",
        "the metadata log is of an earlier time than the deletion",
        "delete the topic once more to go on, or bring back the newer metadata log",
    )
    UNKNOWN = (
        "{topic} has remote segments, and the cluster metadata know neither that it exists nor "
        "that it was removed: they are kept",
        "the metadata log is of an earlier time than the topic, or Apache Kafka or an unreleased "
        "version of ours deleted the topic",
        "Restore the metadata log, or give them up: tidemark remote forget {topic_id}",
    )
    NOT_TAKEN = (
        "the metadata log does not take what is known of removed topics: {error}",
        "the record is tried again at each pass; deleting their remote data goes on",
        "see that the disk of metadata.log.dir can be written and the controllers reached",
    )
    MORE = (
        "and {count} more such topic ids",
        "as the lines before it, of which 20 are shown",
        "as in those lines; the next ones are shown then",
    )


class Standing(Enum):
    """How a partition's topic stands in the cluster."""

    LIVING = "living"
    REMOVED = "removed"
    MARKED_BUT_EXISTS = "marked, but exists"
    UNKNOWN = "unknown"


def standing_of(known: PartitionDeletion, image: ClusterImage) -> Standing:
    """Judge a partition by the image; only REMOVED lets anything go."""
    topic_id = known.partition.topic_id
    if topic_id in image.topic_ids:
        return Standing.LIVING if known.state is None else Standing.MARKED_BUT_EXISTS
    if topic_id in image.removed_ids:
        return Standing.REMOVED
    return Standing.UNKNOWN


def reasons_of(
    marked_but_exist: Iterable[PartitionDeletion], unknown: Iterable[PartitionDeletion]
) -> tuple[RedText, ...]:
    """What an operator has to know and may do, a line for each topic id."""
    lines = [
        RemovalRed.MARKED_BUT_EXISTS.text(topic=topic) for topic in _topics(marked_but_exist)
    ] + [
        RemovalRed.UNKNOWN.text(topic=topic, topic_id=topic_id)
        for topic, topic_id in _topics(unknown).items()
    ]
    more = len(lines) - _NAMED_MAX
    return (*lines[:_NAMED_MAX], *([RemovalRed.MORE.text(count=more)] if more > 0 else []))


def _topics(partitions: Iterable[PartitionDeletion]) -> dict[str, str]:
    found = {}
    for known in partitions:
        topic_id = uuid_to_text(known.partition.topic_id)
        found[f"topic {known.partition.topic} (id {topic_id})"] = topic_id
    return found
