"""What is said of a metadata topic that is there already, as Kafka or an operator made it."""

import asyncio
import logging
from typing import cast

import pytest

from broker.topics.auto_creation import AutoTopicCreation
from broker.topics.internal import ensure_remote_metadata_topic
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import PartitionImage, TopicImage
from metadata_topic.image.sorted_map import SortedMap

BY_KAFKA = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "remote.storage.enable": "false",
    "min.insync.replicas": "2",
}


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
    settings = {
        "remote.log.metadata.topic.num.partitions": "50",
        "remote.log.metadata.topic.replication.factor": "3",
        "remote.log.metadata.topic.retention.ms": retention_ms,
        "remote.log.metadata.topic.min.isr": "2",
    }
    nobody = cast("AutoTopicCreation", None)  # a topic that is there is not made
    with caplog.at_level(logging.WARNING):
        asyncio.run(ensure_remote_metadata_topic(image, nobody, settings, prefix="rlmm.config."))
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
