"""Topics that a broker makes by itself: on the way of a Metadata request, or for its own needs.

It asks the active controller by a CreateTopics request, as clients do; a controller in its process
lets it make the topics, too, that nobody but a broker may make.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from broker.topics.cluster import GUARDED_TOPICS
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from metadata_topic.controller.topic_specs import NewTopic, TopicDefaults, TopicSpec
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from runtime.log_context import escape

log = logging.getLogger(__name__)

VERSION: Final = 7

GRACE_MS: Final = 1_000
"""The controller answers within the request's time: what is decided by then is told as created."""

AskController = Callable[[Any, int], Awaitable[Any]]
"""Sends a CreateTopics request (`VERSION`) with a deadline in ms to the active controller."""


class AutoTopicCreation:
    """See the module.

    Attributes:
        internal: of what topics of the broker's own are made, by their names.
    """

    def __init__(self, ask: AskController, defaults: Callable[[], TopicDefaults]) -> None:
        """`defaults` is asked at each call, as it may change."""
        self._ask, self._defaults = ask, defaults
        self.internal: dict[str, Callable[[], TopicSpec]] = {}

    async def create(self, topics: Sequence[NewTopic]) -> dict[str, KafkaError]:
        """Create what can be created; why not, by name, of the others.

        Guarded names are refused by a controller in another process only.

        Raises:
            KafkaError: the active controller could not be asked, or did not answer.
        """
        answer = await self._ask(_question(topics), DECISION_TIMEOUT_MS + GRACE_MS)
        return {
            one.name: ApiError(ErrorCode.of(one.error_code), one.error_message or "")
            for one in answer.topics
            if one.error_code
        }

    async def auto_create(self, names: Sequence[str]) -> None:
        """Create topics that a client named in a Metadata request, with the broker's defaults.

        What cannot be created is logged; the client is told that the topic is unknown.
        """
        # This broker's defaults, as in Kafka: those of a controller elsewhere may be others.
        own = self._defaults()
        plain = partial(
            TopicSpec, num_partitions=own.num_partitions, replication_factor=own.replication_factor
        )
        wanted = [
            self.internal.get(name, partial(plain, name))()
            for name in names
            if name not in GUARDED_TOPICS
        ]
        if not wanted:
            return
        try:
            refused = await self.create(wanted)
        except KafkaError as error:
            log.warning("no topic could be created on the way: reason=%s", error)
            return
        for name, reason in refused.items():
            shown = escape(name, 100)
            log.info("topic not created on the way: name=%s reason=%s", shown, reason)


def _question(topics: Sequence[NewTopic]) -> Any:
    cls = request(ApiKey.CREATE_TOPICS).cls
    topic = cls.Topics
    return cls(
        topics=[
            topic(
                name=one.name,
                num_partitions=one.num_partitions,
                replication_factor=one.replication_factor,
                assignments=[
                    topic.Assignments(
                        partition_index=each.partition_index, broker_ids=list(each.broker_ids)
                    )
                    for each in one.assignments
                ],
                configs=[topic.Configs(name=each.name, value=each.value) for each in one.configs],
            )
            for one in topics
        ],
        timeout_ms=DECISION_TIMEOUT_MS,
    )
