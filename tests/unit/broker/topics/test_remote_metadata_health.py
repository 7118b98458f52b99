"""Health names the brokers that all tiers wait for."""

from types import SimpleNamespace
from typing import cast

from broker.topics.internal import remote_metadata_notes as notes
from broker.topics.internal import remote_metadata_problems as problems
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage


def image(brokers: list[int], *partitions: tuple[int, list[int]]) -> MetadataImage:
    """Each partition: its leader, its replicas."""
    made = {
        index: SimpleNamespace(leader=leader, replicas=replicas)
        for index, (leader, replicas) in enumerate(partitions)
    }
    topic = SimpleNamespace(name=REMOTE_LOG_METADATA_TOPIC, partitions=made)
    return cast(
        "MetadataImage",
        SimpleNamespace(topics_by_name={topic.name: topic}, brokers=dict.fromkeys(brokers)),
    )


def test_a_broker_that_is_away_with_the_only_replica_is_named() -> None:
    assert problems(EMPTY_IMAGE) == ()
    assert problems(image([1, 2], (1, [1]), (2, [2]))) == []
    (line,) = problems(image([1, 2], (1, [1]), (-1, [2]), (-1, [2])))
    assert "partitions 1, 2," in line
    assert "on broker 2:" in line


def test_one_replica_beside_other_brokers_is_told() -> None:
    assert notes(EMPTY_IMAGE) == ()
    assert notes(image([1], (1, [1]))) == ()
    assert notes(image([1, 2], (1, [1, 2]))) == ()
    (line,) = notes(image([1, 2], (1, [1]), (1, [1, 2])))
    assert "one replica in 1 partitions, on broker 1:" in line
