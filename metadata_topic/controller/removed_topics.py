"""The list of removed tiered topics: what else puts an id onto it, and what takes it off.

The remote store follows a removal only because the metadata log says it, never because an id is
absent: an image may be of an earlier time, or of another log (docs/tiering.md, topic deletion).
"""

from collections.abc import Collection
from enum import IntEnum

from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.errors import InvalidRequestError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.snapshot_records import removed_topics_records


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
