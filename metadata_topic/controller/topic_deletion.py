"""Deleting topics by name or by id, and the list of removed tiered topics.

The remote store follows a removal only because the metadata log says it, never because an id is
absent: an image may be of an earlier time, or of another log (docs/tiering.md, topic deletion).
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kafka_protocol.errors import KafkaError, UnknownTopicId
from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.errors import InvalidRequestError, UnknownTopicError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import RECORD_WORK, MetadataRecord, make
from metadata_topic.image.snapshot_records import removed_topics_records
from runtime.work import Pace, Steps, stepwise


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """What became of one entry of a DeleteTopics request.

    Attributes:
        name: None if the topic was named by an id that does not exist.
        error: why it was not deleted, None if it was.
    """

    name: str | None
    topic_id: bytes
    error: KafkaError | None = None


@stepwise
def delete_topics(
    image: MetadataImage, topics: Sequence[tuple[str | None, bytes]]
) -> Steps[ControllerResult[list[DeletedTopic]]]:
    """Delete topics by name or by id, in steps.

    Args:
        image: the cluster now.
        topics: (name, id) pairs: a name with the zero id, or None with an id.

    Returns:
        One DeletedTopic for each pair, repeated pairs as one.
    """
    counts = Counter(topics)
    named = Counter(
        found.id
        for name, _ in counts
        if name is not None and (found := image.topics_by_name.get(name)) is not None
    )
    records: list[MetadataRecord] = []
    response: list[DeletedTopic] = []
    pace = Pace()
    for (name, topic_id), count in counts.items():
        if pace.is_step_over(RECORD_WORK):
            yield
        try:
            deleted = _find(image, name, topic_id)
            if count > 1:
                what = "id" if name is None else "name"
                raise InvalidRequestError(f"Duplicate topic {what}.")
            if name is None and named[topic_id]:
                raise InvalidRequestError("The topic's name was already supplied with this id.")
        except KafkaError as error:
            response.append(DeletedTopic(name, topic_id, error))
            continue
        records.append(make("RemoveTopicRecord", topic_id=deleted.topic_id))
        response.append(deleted)
    return ControllerResult(tuple(records), response)


def _find(image: MetadataImage, name: str | None, topic_id: bytes) -> DeletedTopic:
    if name is None:
        if topic_id == ZERO_UUID:
            raise InvalidRequestError("Neither topic name nor id were specified.")
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId("This server does not host this topic ID.")
    else:
        if topic_id != ZERO_UUID:
            raise InvalidRequestError("You may not specify both topic name and topic id.")
        topic = image.topics_by_name.get(name)
        if topic is None:
            raise UnknownTopicError("This server does not host this topic-partition.")
    return DeletedTopic(topic.name, topic.id)


class RemoteDataWish(IntEnum):
    """What a DeleteTopics request says of a topic id that does not exist (a tagged field).

    Attributes:
        NOTHING: as Kafka: an unknown topic id.
        FORGET: it counts as removed; its remote data goes.
        KEEP: it no longer does, as far as it is still there.
    """

    NOTHING = 0
    FORGET = 1
    KEEP = 2


def wish_for_remote_data(
    image: MetadataImage, topic_id: bytes, wish: RemoteDataWish
) -> ControllerResult[None]:
    """Let an id that does not exist count as removed, or no longer.

    Raises:
        InvalidRequestError: a topic has this id: it is deleted as all are.
    """
    topic = image.topics_by_id.get(topic_id)
    if topic is not None:
        raise InvalidRequestError(
            f"Topic {topic.name} has this id: what exists is not forgotten, delete it."
        )
    if topic_id == ZERO_UUID:
        raise InvalidRequestError("No topic id was specified.")
    listed = topic_id in image.removed_tiered_topics
    if wish is RemoteDataWish.FORGET and not listed:
        return ControllerResult(tuple(removed_topics_records(removed=[topic_id])), None)
    if wish is RemoteDataWish.KEEP and listed:
        return ControllerResult(tuple(removed_topics_records(emptied=[topic_id])), None)
    return ControllerResult((), None)


def note_emptied(image: MetadataImage, topic_ids: Collection[bytes]) -> ControllerResult[None]:
    """Nothing of these topics is left in the remote store: they leave the list."""
    listed = [one for one in topic_ids if one in image.removed_tiered_topics]
    return ControllerResult(tuple(removed_topics_records(emptied=listed)), None)
