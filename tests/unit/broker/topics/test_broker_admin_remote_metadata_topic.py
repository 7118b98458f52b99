"""What is said of a metadata topic that is there already, as Kafka or an operator made it."""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any, cast

import pytest

from broker.config.key import ConfigError
from broker.topics.auto_creation import AutoTopicCreation
from broker.topics.internal import (
    InternalTopicError,
    TooFewBrokersError,
    ensure_remote_metadata_topic,
)
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from metadata_topic.controller.topic_specs import TopicDefaults
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import BrokerImage, PartitionImage, RemoteStore, TopicImage
from metadata_topic.image.sorted_map import SortedMap

BY_KAFKA = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "remote.storage.enable": "false",
    "min.insync.replicas": "2",
}

SETTINGS = {
    "remote.log.metadata.topic.num.partitions": "50",
    "remote.log.metadata.topic.replication.factor": "3",
    "remote.log.metadata.topic.retention.ms": "-1",
    "remote.log.metadata.topic.min.isr": "2",
}


def ensured(
    image: MetadataImage,
    creation: AutoTopicCreation,
    settings: dict[str, str],
    *,
    is_alone: bool = False,
) -> Coroutine[None, None, None]:
    return ensure_remote_metadata_topic(
        image, creation, settings, prefix="rlmm.config.", node_id=1, is_alone=is_alone
    )


def told(
    caplog: pytest.LogCaptureFixture,
    configs: dict[str, str],
    partitions: int = 50,
    retention_ms: str = "-1",
) -> list[str]:
    """Warnings of a start that finds the topic with these configs."""
    caplog.clear()
    there = dict.fromkeys(range(partitions), cast("PartitionImage", None))
    topic = TopicImage(REMOTE_LOG_METADATA_TOPIC, b"t" * 16, there)
    image = MetadataImage(
        topics_by_name=SortedMap.of({topic.name: topic}),
        configs=SortedMap.of({(ResourceType.TOPIC, topic.name): configs}),
    )
    settings = SETTINGS | {"remote.log.metadata.topic.retention.ms": retention_ms}
    nobody = cast("AutoTopicCreation", None)  # a topic that is there is not made
    with caplog.at_level(logging.WARNING):
        asyncio.run(ensured(image, nobody, settings))
    return caplog.messages


def test_kafkas_topic_is_taken_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, BY_KAFKA) == []


def test_kafkas_partition_count_counts_and_ours_is_told_to_have_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = told(caplog, BY_KAFKA, partitions=5)
    assert "num.partitions=50 has no effect" in line
    assert "exists with 5 partitions" in line


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000"),
    ],
)
def test_a_topic_that_may_forget_is_told(
    caplog: pytest.LogCaptureFixture, key: str, value: str
) -> None:
    (line,) = told(caplog, BY_KAFKA | {key: value})
    assert f"may forget remote segments: {key}={value}" in line


def test_a_retention_that_our_own_setting_asks_for_is_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert told(caplog, BY_KAFKA | {"retention.ms": "999"}, retention_ms="999") == []
    assert told(caplog, BY_KAFKA, retention_ms="999") == []


def asked_for(
    stores: dict[int, RemoteStore | None],
    factor: int = 1,
    *,
    fenced: Collection[int] = (),
    is_alone: bool = False,
) -> Any:
    """The topic that broker 1 asks for."""
    asked: list[Any] = []

    async def ask(question: Any, _timeout_ms: int) -> Any:
        asked.extend(question.topics)
        return response(ApiKey.CREATE_TOPICS).cls(topics=[])

    image = MetadataImage(
        brokers={
            one: BrokerImage(one, 0, bytes(16), remote_store=store, fenced=one in fenced)
            for one, store in stores.items()
        }
    )
    settings = SETTINGS | {
        "remote.log.metadata.topic.replication.factor": str(factor),
        "remote.log.metadata.topic.num.partitions": "3",
    }
    asyncio.run(ensured(image, AutoTopicCreation(ask, TopicDefaults), settings, is_alone=is_alone))
    (topic,) = asked
    return topic


STORE = RemoteStore("rsm:Store", b"p" * 32)


def test_controllers_that_know_who_has_a_tier_place_the_topic() -> None:
    topic = asked_for({1: STORE, 2: None})
    assert (topic.num_partitions, topic.replication_factor, topic.assignments) == (3, 1, [])


def test_the_topic_lies_here_where_controllers_do_not_know_who_has_a_tier() -> None:
    """So that Apache Kafka's never put it on a broker of Apache Kafka."""
    topic = asked_for({1: None, 2: None})
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    found = [(one.partition_index, one.broker_ids) for one in topic.assignments]
    assert found == [(index, [1]) for index in range(3)]


@pytest.mark.parametrize(("stores", "is_alone"), [({1: STORE}, True), ({1: None, 2: None}, False)])
def test_more_replicas_than_there_will_ever_be_brokers_are_refused_by_name(
    stores: dict[int, RemoteStore | None], is_alone: bool
) -> None:
    with pytest.raises(ConfigError, match=r"rlmm\.config\.remote\.log\.metadata\.topic\.repl"):
        asked_for(stores, factor=2, is_alone=is_alone)


def test_the_topic_is_made_when_as_many_brokers_serve_as_it_gets_replicas() -> None:
    stores: dict[int, RemoteStore | None] = {1: STORE, 2: STORE, 3: STORE, 4: None}
    with pytest.raises(TooFewBrokersError, match=r"factor=3, and 2 broker.* serve \(1, 2\)"):
        asked_for(stores, factor=3, fenced=(3,))
    assert asked_for(stores, factor=3).replication_factor == 3


def made(error: ErrorCode) -> None:
    """The active controller answers so."""

    async def ask(_question: Any, _timeout_ms: int) -> Any:
        cls = response(ApiKey.CREATE_TOPICS).cls
        topic = cls.Topics(name=REMOTE_LOG_METADATA_TOPIC, error_code=int(error))
        return cls(topics=[topic])

    image = MetadataImage(
        brokers={1: BrokerImage(1, 0, bytes(16), remote_store=STORE, fenced=False)}
    )
    settings = SETTINGS | {"remote.log.metadata.topic.replication.factor": "1"}
    asyncio.run(ensured(image, AutoTopicCreation(ask, TopicDefaults), settings))


def test_a_topic_that_another_broker_has_made_meanwhile_is_there() -> None:
    made(ErrorCode.TOPIC_ALREADY_EXISTS)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ],
)
def test_what_passes_is_asked_for_again(error: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        made(error)
    assert raised.value.code is error


def test_what_does_not_pass_ends_the_start() -> None:
    with pytest.raises(InternalTopicError, match="cannot be made"):
        made(ErrorCode.POLICY_VIOLATION)
