"""Each handler that is forwarded names what of a request belongs to the brokers (44)."""

from dataclasses import replace
from typing import Any

import pytest

from broker.handlers.alter_configs import AlterConfigsHandler
from broker.handlers.create_partitions import CreatePartitionsHandler
from broker.handlers.create_topics import CreateTopicsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.forwarded import Guarding
from broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from broker.network.registry import DecodedHandler
from broker.topics.cluster import ClusterView
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC
from kafka_protocol.wire.codec import request, response
from metadata_topic.controller.configs import Operation
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.model import TopicImage
from metadata_topic.image.sorted_map import SortedMap

UNUSED: Any = None
THROTTLED = "follower.replication.throttled.replicas"
TOPIC_ID = bytes(15) + b"\7"
TOPIC = 2


def image() -> MetadataImage:
    topic = TopicImage(REMOTE_LOG_METADATA_TOPIC, TOPIC_ID, {})
    return replace(EMPTY_IMAGE, topics_by_id=SortedMap.of({TOPIC_ID: topic}))


CREATE = CreateTopicsHandler(UNUSED, UNUSED)
DELETE = DeleteTopicsHandler(ClusterView(1, "c", image), UNUSED, enabled=True)
GROW = CreatePartitionsHandler(UNUSED)
ALTER = AlterConfigsHandler(UNUSED, UNUSED)
CHANGE = IncrementalAlterConfigsHandler(UNUSED, UNUSED)


def entry(handler: DecodedHandler, **fields: Any) -> Any:
    """An entry of the list in which a request names topics."""
    cls = request(handler.api_key).cls
    return (cls.Resources if hasattr(cls, "Resources") else cls.Topics)(**fields)


def resource(handler: DecodedHandler, name: str, *configs: Any) -> Any:
    return entry(handler, resource_type=TOPIC, resource_name=name, configs=list(configs))


def change(name: str, value: str, operation: Operation = Operation.SET) -> Any:
    cls = request(CHANGE.api_key).cls.Resources.Configs
    return cls(name=name, value=value, config_operation=int(operation))


@pytest.mark.parametrize(
    ("handler", "version", "asked"),
    [
        (CREATE, 7, entry(CREATE, name=CLUSTER_METADATA_TOPIC)),
        (CREATE, 2, entry(CREATE, name=REMOTE_LOG_METADATA_TOPIC)),
        (DELETE, 5, REMOTE_LOG_METADATA_TOPIC),
        (DELETE, 6, entry(DELETE, name=CLUSTER_METADATA_TOPIC)),
        (DELETE, 6, entry(DELETE, name=None, topic_id=TOPIC_ID)),
        (GROW, 3, entry(GROW, name=REMOTE_LOG_METADATA_TOPIC)),
        (GROW, 3, entry(GROW, name="__consumer_offsets")),
        (ALTER, 2, resource(ALTER, REMOTE_LOG_METADATA_TOPIC)),
        (CHANGE, 1, resource(CHANGE, REMOTE_LOG_METADATA_TOPIC, change("retention.ms", "1"))),
        (
            CHANGE,
            1,
            resource(
                CHANGE,
                REMOTE_LOG_METADATA_TOPIC,
                change(THROTTLED, "", Operation.DELETE),
                change("retention.ms", "", Operation.DELETE),
            ),
        ),
        (CHANGE, 1, resource(CHANGE, CLUSTER_METADATA_TOPIC, change(THROTTLED, "0:1"))),
    ],
)
def test_it_is_refused(handler: Any, version: int, asked: Any) -> None:
    assert isinstance(handler, Guarding)
    assert hasattr(request(handler.api_key).cls(), handler.asked_in(version))
    result = handler.guarded(asked)
    assert result is not None
    assert result.error_code == ErrorCode.POLICY_VIOLATION
    codec = response(handler.api_key)
    codec.encode(codec.cls(**{handler.answered_in: [result]}), version)


@pytest.mark.parametrize(
    ("handler", "asked"),
    [
        (CREATE, entry(CREATE, name="t")),
        (DELETE, "t"),
        (DELETE, entry(DELETE, name=None, topic_id=bytes(16))),
        (GROW, entry(GROW, name="t")),
        (ALTER, resource(ALTER, "t")),
        (CHANGE, resource(CHANGE, REMOTE_LOG_METADATA_TOPIC, change("retention.ms", "-1"))),
    ],
)
def test_the_controller_is_asked(handler: Any, asked: Any) -> None:
    assert handler.guarded(asked) is None


@pytest.mark.parametrize("of", ["leader", "follower"])
@pytest.mark.parametrize("operation", Operation)
def test_a_move_of_the_tiers_topic_is_throttled_and_no_longer(
    of: str, operation: Operation
) -> None:
    """`kafka-reassign-partitions.sh --verify` and `--cancel` take a throttle away, set or not."""
    asked = change(f"{of}.replication.throttled.replicas", "0:1", operation)
    assert CHANGE.guarded(resource(CHANGE, REMOTE_LOG_METADATA_TOPIC, asked)) is None
