"""Metrics per topic, under the names that Kafka's JMX beans have in Prometheus.

A hosted partition holds its topic's counters, so that counting on the hot path is an addition.
Prometheus sums them up over all topics.
"""

from collections.abc import Callable
from typing import Final

from runtime.metrics import Counter, CounterChild, Registry

_NAMES: Final = {
    "bytes_in": ("BytesInPerSec", "Bytes of record batches appended from clients."),
    "bytes_out": ("BytesOutPerSec", "Bytes of record batches sent to consumers."),
    "bytes_rejected": ("BytesRejectedPerSec", "Bytes of record batches that were refused."),
    "messages_in": ("MessagesInPerSec", "Records appended from clients."),
    "produce_requests": ("TotalProduceRequestsPerSec", "Appends asked for, one a partition."),
    "fetch_requests": ("TotalFetchRequestsPerSec", "Reads asked for, one a partition."),
    "failed_produce": ("FailedProduceRequestsPerSec", "Appends answered with an error."),
    "failed_fetch": ("FailedFetchRequestsPerSec", "Reads answered with an error."),
}


_TOTALS: Final = {
    "replication_bytes_in": (
        "ReplicationBytesInPerSec",
        "Bytes of record batches copied from leaders, of all topics.",
    ),
    "replication_bytes_out": (
        "ReplicationBytesOutPerSec",
        "Bytes of record batches sent to followers, of all topics.",
    ),
}


class TopicCounters:
    """The counters of one topic, and those that all topics share."""

    __slots__ = (*_NAMES, *_TOTALS)

    bytes_in: CounterChild
    bytes_out: CounterChild
    bytes_rejected: CounterChild
    messages_in: CounterChild
    produce_requests: CounterChild
    fetch_requests: CounterChild
    failed_produce: CounterChild
    failed_fetch: CounterChild
    replication_bytes_in: CounterChild
    replication_bytes_out: CounterChild


class TopicMetrics:
    """Makes and forgets the counters of topics.

    Attributes:
        on_forget: Called with each topic that is gone; others drop their metrics of it there.
    """

    def __init__(self, registry: Registry) -> None:
        self._counters: dict[str, Counter] = {
            field: registry.counter(
                f"kafka_server_BrokerTopicMetrics_{name}_total", text, ("topic",)
            )
            for field, (name, text) in _NAMES.items()
        }
        self._totals: dict[str, CounterChild] = {
            field: registry.counter(f"kafka_server_BrokerTopicMetrics_{name}_total", text).labels()
            for field, (name, text) in _TOTALS.items()
        }
        self._topics: dict[str, TopicCounters] = {}
        self.on_forget: list[Callable[[str], None]] = []

    def __contains__(self, topic: str) -> bool:
        """True if a partition of the topic is hosted."""
        return topic in self._topics

    def of(self, topic: str) -> TopicCounters:
        """The counters of a topic that exists (never of a name a client made up)."""
        found = self._topics.get(topic)
        if found is None:
            found = TopicCounters()
            for field, counter in self._counters.items():
                setattr(found, field, counter.labels(topic))
            for field, total in self._totals.items():
                setattr(found, field, total)
            self._topics[topic] = found
        return found

    def forget(self, topic: str) -> None:
        """Remove the metrics of a topic that is gone, and call `on_forget`."""
        if self._topics.pop(topic, None) is not None:
            for counter in self._counters.values():
                counter.remove(topic)
            for told in self.on_forget:
                told(topic)
