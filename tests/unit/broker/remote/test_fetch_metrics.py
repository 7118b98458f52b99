"""What the broker counts of remote reads is there as long as the topic is hosted."""

from broker.remote.fetch_metrics import RemoteFetchMetrics
from broker.replica.topic_metrics import TopicMetrics
from kafka_protocol.types import TopicPartition
from runtime.metrics import Registry


def count_all(metrics: RemoteFetchMetrics, topic: str) -> None:
    metrics.asked(topic)
    metrics.got(topic, 100)
    metrics.failed(topic)
    metrics.look_up_expired(TopicPartition(topic, 3))
    metrics.expired()


def test_all_of_a_topic_goes_with_it_and_a_late_answer_brings_nothing_back() -> None:
    registry = Registry()
    metrics, hosted = RemoteFetchMetrics(registry), TopicMetrics(registry)

    def samples(topic: str) -> set[str]:
        return {sample.name for sample in registry.samples() if sample.labels.get("topic") == topic}

    metrics.attach(hosted)
    hosted.of("orders"), hosted.of("others")
    count_all(metrics, "orders")
    count_all(metrics, "others")
    assert len({name for name in samples("orders") if "Remote" in name}) == 4
    hosted.forget("orders")
    assert samples("orders") == set()
    count_all(metrics, "orders")
    assert samples("orders") == set()
    assert samples("others")
