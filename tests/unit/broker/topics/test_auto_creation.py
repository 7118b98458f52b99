"""What a broker asks of the active controller for topics that it makes by itself."""

from typing import Any

from broker.topics.auto_creation import GRACE_MS, AutoTopicCreation
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from metadata_topic.controller.topic_specs import TopicDefaults
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS


async def test_topics_on_the_way_have_this_brokers_defaults_and_a_margin() -> None:
    """The controller elsewhere may have others; what it decides in time is not given up."""
    asked: list[tuple[Any, int]] = []

    async def ask(question: Any, timeout_ms: int) -> Any:
        asked.append((question, timeout_ms))
        return response(ApiKey.CREATE_TOPICS).cls(topics=[])

    await AutoTopicCreation(ask, lambda: TopicDefaults(7, 3)).auto_create(["one"])
    ((question, timeout_ms),) = asked
    (topic,) = question.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("one", 7, 3)
    assert timeout_ms == question.timeout_ms + GRACE_MS == DECISION_TIMEOUT_MS + GRACE_MS
