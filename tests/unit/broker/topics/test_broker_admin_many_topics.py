"""Requests about many topics, on an image in memory."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.describe_configs import DescribeConfigsHandler
from broker.handlers.metadata import MetadataHandler
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.codec import message
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.records import make
from tests.support.worlds.admin import (
    TOPIC,
    Admin,
)


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin({}, tmp_path)


def test_many_topics_are_created_described_and_deleted_as_few_are(admin: Admin) -> None:
    names = [f"topic-{number}" for number in range(300)]
    created = admin.create(*names, configs={"retention.ms": "1000"})
    assert [topic.error_code for topic in created] == [0] * 300
    assert {config.value for config in created[299].configs if config.name == "retention.ms"} == {
        "1000"
    }
    known = admin.metadata_of(*names)
    assert [topic.name for topic in known] == names
    assert [topic.topic_id for topic in known] == [topic.topic_id for topic in created]
    everything = admin.ask(
        MetadataHandler(admin.cluster, None), message("MetadataRequest").cls(topics=None)
    )
    assert [topic.name for topic in everything.topics] == sorted(names)
    assert len(everything.brokers) == 1
    gone = admin.delete(*((name, ZERO_UUID) for name in names))
    assert [topic.error_code for topic in gone] == [0] * 300


def test_the_configs_of_many_topics_are_those_of_each(admin: Admin) -> None:
    names = [f"topic-{number}" for number in range(40)]
    for name in names:
        admin.create(name, configs={"retention.ms": name.removeprefix("topic-") + "00"})
    cls = message("DescribeConfigsRequest").cls
    resources = [
        cls.Resources(resource_type=TOPIC, resource_name=name, configuration_keys=None)
        for name in names
    ]
    handler = DescribeConfigsHandler(admin.cluster, admin.live)
    request = cls(resources=resources, include_synonyms=True, include_documentation=True)
    assert admin.ask(handler, request).results == [admin.describe(TOPIC, name) for name in names]


def test_a_resource_that_is_named_often_is_described_once(admin: Admin) -> None:
    admin.create("topic")
    cls = message("DescribeConfigsRequest").cls

    def resource(*keys: str, name: str = "topic") -> Any:
        return cls.Resources(
            resource_type=TOPIC, resource_name=name, configuration_keys=list(keys) or None
        )

    size, time = "segment.bytes", "segment.ms"
    asked = [resource(), resource(size), resource(size, time), resource(name="absent")]
    again = [resource(time, size), resource(name="absent"), resource()] * 1_000
    handler = DescribeConfigsHandler(admin.cluster, admin.live)
    answer = admin.ask(handler, cls(resources=[*asked, *again]))
    assert answer.results == admin.ask(handler, cls(resources=asked)).results
    assert [one.resource_name for one in answer.results] == ["topic"] * 3 + ["absent"]
    assert [len(one.configs) for one in answer.results[1:]] == [1, 2, 0]


def test_metadata_of_a_topic_are_new_after_a_change_of_it_or_of_a_broker(admin: Admin) -> None:
    admin.create("changes")
    admin.create("stays")
    handler = MetadataHandler(admin.cluster, None)

    def offline() -> dict[str, list[int]]:
        answer = admin.ask(handler, message("MetadataRequest").cls(topics=None))
        return {t.name: t.partitions[0].offline_replicas for t in answer.topics}

    def isr() -> dict[str, list[int]]:
        answer = admin.ask(handler, message("MetadataRequest").cls(topics=None))
        return {t.name: t.partitions[0].isr_nodes for t in answer.topics}

    assert isr() == {"changes": [1], "stays": [1]}
    topic = admin.node.image.topics_by_name["changes"]
    record = make("PartitionChangeRecord", 2, partition_id=0, topic_id=topic.id, isr=[])
    asyncio.run(admin.node.submit(lambda _image: ControllerResult((record,), None)))
    assert isr() == {"changes": [], "stays": [1]}
    assert offline() == {"changes": [], "stays": []}
    fenced = make("FenceBrokerRecord", id=1, epoch=0)
    asyncio.run(admin.node.submit(lambda _image: ControllerResult((fenced,), None)))
    assert offline() == {"changes": [1], "stays": [1]}
