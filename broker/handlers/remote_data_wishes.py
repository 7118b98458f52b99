"""Serves `tidemark remote forget` on brokers whose controllers are Apache Kafka's.

The tool sends a DeleteTopics request with a tagged field of Tidemark. A controller of Tidemark
writes the decision to the metadata log, for all brokers. Kafka's controllers skip the field and
find no such topic. With them, each broker with a remote tier writes the decision to its own file.
So the tool sends the request to all of these brokers.
"""

import logging
from inspect import isawaitable
from typing import Any

from broker.handlers.delete_topics import failed, taken, wishes_of
from broker.network.registry import DecodedHandler, RequestContext
from broker.node.active_controller import ActiveController
from broker.remote.removed_topics import RemovedTopicsFile
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.controller.topic_deletion import RemoteDataWish

log = logging.getLogger(__name__)

_Response = message("DeleteTopicsResponse").cls


class RemoteDataWishes(DecodedHandler):
    """Serves decisions on remote data here if the active controller cannot; forwards all else."""

    def __init__(
        self,
        there: DecodedHandler,
        active: ActiveController,
        cluster: ClusterView,
        removed_topics: RemovedTopicsFile,
    ) -> None:
        """`there` serves all other requests."""
        self.api_key, self.versions = there.api_key, there.versions
        self._there, self._active = there, active
        self._cluster, self._removed_topics = cluster, removed_topics

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Serve a request; with Kafka's controllers it may not also delete topics."""
        wishes = wishes_of(context.api_version, request)
        if not wishes or self._active.serves(ApiKey.UPDATE_REMOVED_TOPICS) is not False:
            answer = self._there.handle(context, request)
            return await answer if isawaitable(answer) else answer
        responses = [
            failed(
                (topic.name, topic.topic_id),
                ErrorCode.INVALID_REQUEST,
                "Topics are not deleted in a request that asks for remote data, "
                "while the active controller is Apache Kafka's.",
            )
            for topic in request.topics
            if topic.name is not None or topic.topic_id not in wishes
        ]
        for topic_id, wish in wishes.items():
            responses.append(await self._take(topic_id, wish))
        return _Response(responses=responses)

    async def _take(self, topic_id: bytes, wish: int) -> Any:
        asked = (None, topic_id)
        topic = self._cluster.image().topics_by_id.get(topic_id)
        if topic is not None:
            text = f"Topic {topic.name} has this id: what exists is not forgotten, delete it."
            return failed(asked, ErrorCode.INVALID_REQUEST, text)
        match wish:
            case RemoteDataWish.FORGET:
                self._removed_topics.forget(topic_id)
            case RemoteDataWish.KEEP:
                self._removed_topics.drop([topic_id])
            case _:
                return failed(asked, ErrorCode.INVALID_REQUEST, f"RemoteData={wish}")
        try:
            await self._removed_topics.kept()
        except OSError as error:
            return failed(asked, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        name = RemoteDataWish(wish).name
        log.warning("remote data of a topic id: wish=%s topic_id=%s", name, uuid_to_text(topic_id))
        return taken(topic_id)
