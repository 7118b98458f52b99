"""Which brokers can be unregistered: those that neither serve nor have replicas."""

import pytest

from metadata_topic.controller.brokers import begin_controlled_shutdown, fence_broker
from metadata_topic.controller.errors import BrokerIdNotRegisteredError, PolicyViolationError
from metadata_topic.controller.unregistration import unregister_broker
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of, started


def fenced(image: MetadataImage, broker_id: int) -> MetadataImage:
    epoch = image.brokers[broker_id].epoch
    return apply(image, fence_broker(image, broker_id=broker_id, broker_epoch=epoch).records)


def with_topics(image: MetadataImage, *names: str, replicas: list[int]) -> MetadataImage:
    records = []
    for name in names:
        topic_id = name.encode().ljust(16)
        records += [
            make("TopicRecord", name=name, topic_id=topic_id),
            make(
                "PartitionRecord",
                2,
                partition_id=0,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas[:1],
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[b"d" * 16] * len(replicas),
            ),
        ]
    return apply(image, records)


def test_a_stopped_broker_without_replicas_goes_and_registers_anew() -> None:
    image = with_topics(fenced(cluster_of(1, 2), 2), "t", replicas=[1])
    epoch = image.brokers[2].epoch
    result = unregister_broker(image, broker_id=2)
    assert result.records == (make("UnregisterBrokerRecord", broker_id=2, broker_epoch=epoch),)
    image = apply(image, result.records)
    assert set(image.brokers) == {1}
    image = started(image, 2, life=2)
    assert image.brokers[2].is_active
    assert image.brokers[2].epoch > epoch


def test_an_unknown_broker_is_refused_as_by_kafka() -> None:
    with pytest.raises(
        BrokerIdNotRegisteredError, match="Broker ID 55 is not currently registered"
    ):
        unregister_broker(cluster_of(1), broker_id=55)


@pytest.mark.parametrize("stops", [False, True])
def test_a_broker_that_serves_or_is_about_to_stop_is_refused(stops: bool) -> None:
    image = cluster_of(1, 2)
    if stops:
        epoch = image.brokers[2].epoch
        stopping = begin_controlled_shutdown(image, broker_id=2, broker_epoch=epoch)
        image = apply(image, stopping.records)
    with pytest.raises(PolicyViolationError, match=r"Broker 2 serves .* Stop it"):
        unregister_broker(image, broker_id=2)


@pytest.mark.parametrize("replicas", [[2], [1, 2]], ids=["the only one", "out of sync"])
def test_a_broker_with_replicas_is_refused_by_their_names(replicas: list[int]) -> None:
    """What is known of its directories would be gone: an old copy of one would be served."""
    image = fenced(with_topics(cluster_of(1, 2), *"edcba", replicas=replicas), 2)
    with pytest.raises(PolicyViolationError, match=r"\(a, b, c and 2 more\) .* delete"):
        unregister_broker(image, broker_id=2)
