"""Topics that a broker creates: for a Metadata request, or for its own needs.

It sends a CreateTopics request to the active controller, as clients do. Only a controller in the
same process lets it create guarded topics.
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
"""Time beyond the request's time-out for the controller's answer, so that no decision is missed."""

AskController = Callable[[Any, int], Awaitable[Any]]
"""Sends a CreateTopics request (`VERSION`) with a deadline in ms to the active controller."""


class AutoTopicCreation:
    """Creates topics through the active controller.

    Attributes:
        internal: Specifications of the broker's own topics, by name.
    """

    def __init__(self, ask: AskController, defaults: Callable[[], TopicDefaults]) -> None:
        """`defaults` is called for each creation, because settings may change."""
        self._ask, self._defaults = ask, defaults
        self.internal: dict[str, Callable[[], TopicSpec]] = {}

    async def create(self, topics: Sequence[NewTopic]) -> dict[str, KafkaError]:
        """Create topics; returns the errors of the topics that could not be created, by name.

        Only a controller in another process refuses guarded names.

        Raises:
            KafkaError: The active controller could not be reached, or did not answer.
        """
        answer = await self._ask(_question(topics), DECISION_TIMEOUT_MS + GRACE_MS)
        return {
            one.name: ApiError(ErrorCode.of(one.error_code), one.error_message or "")
            for one in answer.topics
            if one.error_code
        }

    async def auto_create(self, names: Sequence[str]) -> None:
        """Create topics that a client named in a Metadata request, with the broker's defaults.

        Failures are logged; the client gets UNKNOWN_TOPIC_OR_PARTITION.
        """
        # As in Kafka, this broker's defaults: a controller elsewhere may have others.
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
