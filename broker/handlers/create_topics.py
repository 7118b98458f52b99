"""CreateTopics (19): each topic of the request is created or refused on its own."""

from typing import Any, Final

from broker.cluster import GUARDED_TOPICS
from broker.config.describe import describe_topic
from broker.config.topic_config import InvalidConfig, normalise
from broker.handlers.registry import Handler, RequestContext
from broker.live_config import LiveConfig
from broker.topic_creation import TopicCreation
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message
from metadata_topic.controller.topics import CreatedTopic

_Response: Final = message("CreateTopicsResponse").cls
_Topic: Final = _Response.Topics
_Config: Final = _Topic.Configs
_AskedConfig: Final = message("CreateTopicsRequest").cls.Topics.Configs


class CreateTopicsHandler:
    """Answers CreateTopics."""

    def __init__(self, creation: TopicCreation, config: LiveConfig) -> None:
        self._creation = creation
        self._config = config

    async def handle(self, context: RequestContext, request: Any) -> Any:
        """Create, wait until the metadata log holds the topics, and answer for each."""
        refused, wanted = [], []
        for topic in request.topics:
            error = _refusal(topic)
            if error is None:
                wanted.append(topic)
            else:
                refused.append(_failed(topic.name, error))
        if not wanted:
            return _Response(topics=refused)
        try:
            created = await self._creation.create(
                wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
            )
        except KafkaError as error:  # the metadata log takes no records
            return _Response(topics=refused + [_failed(topic.name, error) for topic in wanted])
        answers = [self._answer(topic, context.api_version) for topic in created]
        return _Response(topics=refused + answers)

    def _answer(self, topic: CreatedTopic, version: int) -> Any:
        if topic.error is not None:
            return _failed(topic.name, topic.error)
        answer = _Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            error_message=None,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
        )
        if version >= 5:
            entries = describe_topic(self._config.current, topic.configs)
            answer.configs = [
                _Config(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.is_sensitive,
                )
                for entry in sorted(entries, key=lambda entry: entry.name)
            ]
        return answer


def make(creation: TopicCreation, config: LiveConfig) -> Handler:
    """Make the handler of CreateTopics 2-7."""
    return Handler(ApiKey.CREATE_TOPICS, 2, 7, CreateTopicsHandler(creation, config).handle)


class GuardedTopic(KafkaError):
    """Only the brokers make this topic.

    DIFFERS: Kafka answers INVALID_REQUEST for `__cluster_metadata` (KIP-630 promises 44), and lets
    anybody make `__remote_log_metadata`, whose settings tiering depends on.
    """

    code = ErrorCode.POLICY_VIOLATION


def _refusal(topic: Any) -> KafkaError | None:
    """Why the controller need not be asked; also puts today's names for old names of settings."""
    if topic.name in GUARDED_TOPICS:
        return GuardedTopic(f"Creation of internal topic {topic.name} is prohibited.")
    try:
        configs = normalise({config.name: config.value for config in topic.configs})
    except InvalidConfig as error:
        return error
    topic.configs = [_AskedConfig(name=name, value=value) for name, value in configs.items()]
    return None


def _failed(name: str, error: KafkaError) -> Any:
    return _Topic(name=name, error_code=error.code, error_message=str(error))
