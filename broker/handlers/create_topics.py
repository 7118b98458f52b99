"""CreateTopics (19): each topic of the request is created or refused on its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.cluster import GUARDED_TOPICS
from broker.handlers.registry import Handler, RequestContext
from broker.topic_creation import TopicCreation
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from metadata_topic.controller.topics import CreatedTopic

_Response: Final = message("CreateTopicsResponse").cls
_Topic: Final = _Response.Topics
_Config: Final = _Topic.Configs


class EffectiveConfig(NamedTuple):
    """One setting of a topic with its source, as CreateTopics and DescribeConfigs print it."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool


DescribeTopicConfigs = Callable[[Mapping[str, str]], Sequence[EffectiveConfig]]
"""All settings of a topic that has these overrides, sorted by name."""


class CreateTopicsHandler:
    """Answers CreateTopics."""

    def __init__(self, creation: TopicCreation, describe: DescribeTopicConfigs) -> None:
        self._creation = creation
        self._describe = describe

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Create, wait until the metadata log holds the topics, and answer for each."""
        refused = [topic for topic in request.topics if topic.name in GUARDED_TOPICS]
        wanted = [topic for topic in request.topics if topic.name not in GUARDED_TOPICS]
        created = (
            await self._creation.create(wanted, validate_only=request.validate_only)
            if wanted
            else []
        )
        return _Response(
            topics=[_guarded(topic.name) for topic in refused]
            + [self._answer(topic, context.api_version) for topic in created]
        )

    def _answer(self, topic: CreatedTopic, version: int) -> Any:
        if topic.error is not None:
            return _Topic(
                name=topic.name, error_code=topic.error.code, error_message=str(topic.error)
            )
        answer = _Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            error_message=None,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
        )
        if version >= 5:
            answer.configs = [
                _Config(
                    name=config.name,
                    value=config.value,
                    read_only=config.read_only,
                    config_source=config.source,
                    is_sensitive=config.is_sensitive,
                )
                for config in self._describe(topic.configs)
            ]
        return answer


def make(creation: TopicCreation, describe: DescribeTopicConfigs) -> Handler:
    """Make the handler of CreateTopics 2-7."""
    return Handler(ApiKey.CREATE_TOPICS, 2, 7, CreateTopicsHandler(creation, describe).handle)


def _guarded(name: str) -> Any:
    """DIFFERS: Kafka answers INVALID_REQUEST; KIP-630 promises POLICY_VIOLATION."""
    return _Topic(
        name=name,
        error_code=ErrorCode.POLICY_VIOLATION,
        error_message=f"Creation of internal topic {name} is prohibited.",
    )
