"""Topics that a broker makes by itself while the active controller is in another process."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from broker.topics.creation import TopicCreation
from kafka_protocol.errors import ApiError, ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from metadata_topic.controller.topic_specs import NewTopic
from metadata_topic.controller.topics import CreatedTopic
from metadata_topic.quorum.active.deadlines import DECISION_TIMEOUT_MS

VERSION = 7

AskThere = Callable[[Any, int], Awaitable[Any] | None]
"""Sends a CreateTopics request (version 7) with a deadline in ms; None where it is served here."""


class ForwardedCreation(TopicCreation):
    """Creates topics here or there; `ask_there` is set by those who know the way."""

    ask_there: AskThere = staticmethod(lambda _question, _timeout_ms: None)

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int = 0
    ) -> list[CreatedTopic]:
        """As `TopicCreation.create`; what is made there is not waited for here."""
        wait_ms = timeout_ms if timeout_ms > 0 else DECISION_TIMEOUT_MS
        asked = self.ask_there(_question(topics, wait_ms, validate_only=validate_only), wait_ms)
        if asked is None:
            return await super().create(topics, validate_only=validate_only, timeout_ms=timeout_ms)
        answer = await asked
        return [_created(one) for one in answer.topics]


def _question(topics: Sequence[NewTopic], timeout_ms: int, *, validate_only: bool) -> Any:
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
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def _created(one: Any) -> CreatedTopic:
    code = ErrorCode.of(one.error_code)
    if code != ErrorCode.NONE:
        return CreatedTopic(one.name, ApiError(code, one.error_message or ""))
    configs = {config.name: config.value for config in one.configs or () if config.value}
    return CreatedTopic(
        one.name,
        topic_id=one.topic_id,
        num_partitions=one.num_partitions,
        replication_factor=one.replication_factor,
        configs=configs,
    )
