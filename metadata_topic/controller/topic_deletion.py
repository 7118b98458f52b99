"""Deleting topics by name or by id, and the list of removed tiered topics.

Remote data is removed only if the metadata log has a record of it. An absent topic id is no reason,
because an image may be an old copy, or of another log (docs/tiering.md, topic deletion).
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
    """Outcome for one entry of a DeleteTopics request.

    Attributes:
        name: None if the topic was named by an id that does not exist.
        error: None if the topic was deleted.
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
        image: The cluster now.
        topics: (name, id): a name with the zero id, or None with an id.

    Returns:
        One DeletedTopic for each distinct pair.
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
    """Request about the remote data of a topic id that does not exist (a tagged field).

    Attributes:
        NOTHING: The id is unknown, as in Kafka.
        FORGET: List the topic as removed; its remote data is deleted.
        KEEP: Take it off the list; remote data that is still there stays.
    """

    NOTHING = 0
    FORGET = 1
    KEEP = 2


def wish_for_remote_data(
    image: MetadataImage, topic_id: bytes, wish: RemoteDataWish
) -> ControllerResult[None]:
    """List a topic id that does not exist as removed, or take it off the list.

    Raises:
        InvalidRequestError: A topic with this id exists, or the id is zero.
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
    """Take topics off the list, because the remote store has nothing of them."""
    listed = [one for one in topic_ids if one in image.removed_tiered_topics]
    return ControllerResult(tuple(removed_topics_records(emptied=listed)), None)
