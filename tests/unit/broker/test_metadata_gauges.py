"""Gauges of the whole cluster follow each image."""

from broker.observe.cluster_metrics import register_metadata_metrics
from metadata_topic.controller.brokers import fence_broker
from metadata_topic.controller.topic_specs import TopicDefaults, TopicSpec
from metadata_topic.controller.topics import create_topics
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from runtime.metrics import Registry
from tests.support.samples.metadata import apply, cluster_of


class Node:
    failure: BaseException | None = None
    ignores_static_voters = False


def test_partitions_and_leaderless_ones_are_counted_after_each_change() -> None:
    image = cluster_of(1, 2)
    registry = Registry()

    def now() -> MetadataImage:
        return image

    register_metadata_metrics(registry, now, Node())

    def gauges() -> tuple[float, float]:
        found = {sample.name.rpartition("_")[2]: sample.value for sample in registry.samples()}
        return found["GlobalPartitionCount"], found["OfflinePartitionsCount"]

    assert gauges() == (0, 0)
    created = create_topics(
        image,
        [TopicSpec(f"topic-{number}", 2, 1) for number in range(1_000)],
        defaults=TopicDefaults(),
        topic_ids=[number.to_bytes(16, "big") for number in range(1, 1_001)],
        validate_config=lambda _name, _configs: None,
    )
    image = apply(image, created.records)
    assert gauges() == (2_000, 0)
    records = [
        make("PartitionChangeRecord", 2, partition_id=1, topic_id=bytes(15) + b"\x07", leader=-1)
    ]
    image = apply(image, records)
    assert gauges() == (2_000, 1)
    epoch = image.brokers[2].epoch
    led = sum(p.leader == 2 for t in image.topics_by_id.values() for p in t.partitions.values())
    image = apply(image, fence_broker(image, broker_id=2, broker_epoch=epoch).records)
    assert gauges() == (2_000, 1 + led)
    image = apply(image, [make("RemoveTopicRecord", topic_id=bytes(15) + b"\x07")])
    assert gauges()[0] == 1_998


def test_static_voters_that_count_no_more_are_shown_under_both_names() -> None:
    registry, node = Registry(), Node()
    register_metadata_metrics(registry, MetadataImage, node)
    names = (
        "kafka_controller_KafkaController_IgnoredStaticVoters",
        "kafka_server_broker_metadata_metrics_ignored_static_voters",
    )

    def gauges() -> list[float]:
        found = {sample.name: sample.value for sample in registry.samples()}
        return [found[name] for name in names]

    assert gauges() == [0, 0]
    node.ignores_static_voters = True
    assert gauges() == [1, 1]
