"""Health names the brokers that all tiers wait for."""

from types import SimpleNamespace
from typing import cast

from broker.topics.internal import remote_metadata_notes as notes
from broker.topics.internal import remote_metadata_problems as problems
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage


class Broker:
    """One with a listener for tiers, or one of Apache Kafka."""

    def __init__(self, broker_id: int, *, is_kafkas: bool = False) -> None:
        self.id, self._is_kafkas = broker_id, is_kafkas

    def endpoint(self, name: str) -> str | None:
        assert name == "tier"
        return None if self._is_kafkas else "there"


def image(
    brokers: list[int], *partitions: tuple[int, list[int]], kafkas: tuple[int, ...] = ()
) -> MetadataImage:
    """Each partition: its leader, its replicas."""
    made = {
        index: SimpleNamespace(leader=leader, replicas=replicas)
        for index, (leader, replicas) in enumerate(partitions)
    }
    known = {one: Broker(one, is_kafkas=one in kafkas) for one in brokers}
    topic = SimpleNamespace(name=REMOTE_LOG_METADATA_TOPIC, partitions=made)
    return cast(
        "MetadataImage",
        SimpleNamespace(topics_by_name={topic.name: topic}, brokers=known),
    )


def test_a_broker_that_is_away_with_the_only_replica_is_named() -> None:
    assert problems(EMPTY_IMAGE, 1) == ()
    assert problems(image([1, 2], (1, [1]), (2, [2])), 1) == []
    (line,) = problems(image([1, 2], (1, [1]), (-1, [2]), (-1, [2])), 1)
    assert "partitions 1, 2," in line
    assert "on broker 2:" in line


def test_a_leader_that_no_tier_reaches_is_named() -> None:
    led = ((1, [1, 2]), (2, [1, 2]), (2, [1, 2]))
    (line,) = problems(image([1, 2], *led, kafkas=(2,)), 1)
    assert "is led in partitions 1, 2 by broker 2, which has no listener for tiers" in line
    assert problems(image([1, 2], *led, kafkas=(1,)), 1) == [], "a lone one's is in no registration"


def test_one_replica_beside_other_brokers_is_told() -> None:
    assert notes(EMPTY_IMAGE) == ()
    assert notes(image([1], (1, [1]))) == ()
    assert notes(image([1, 2], (1, [1, 2]))) == ()
    (line,) = notes(image([1, 2], (1, [1]), (1, [1, 2])))
    assert "one replica in 1 partitions, on broker 1:" in line
