"""Deleting topics by name or by id."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_protocol.errors import KafkaError, UnknownTopicId
from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.errors import InvalidRequestError, UnknownTopicError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import RECORD_WORK, MetadataRecord, make
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
