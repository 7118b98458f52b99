"""The broker's metrics of reads of the remote tier: for clients, and for its own followers.

The broker counts, because most reads are served from leased ranges without the tier. By topic, for
hosted topics: with the last partition of a topic its counts are removed, and a read that ends later
is not counted.
"""

from broker.replica.topic_metrics import TopicMetrics
from kafka_protocol.types import TopicPartition
from runtime.metrics import Counter, Registry

_PREFIX = "kafka_server_BrokerTopicMetrics_"


class RemoteFetchMetrics:
    """Requests, bytes, errors, and reads without a result in time."""

    def __init__(self, metrics: Registry) -> None:
        topic = ("topic",)
        self._requests = metrics.counter(
            f"{_PREFIX}RemoteFetchRequestsPerSec_total", "Reads of the remote tier", topic
        )
        self._bytes = metrics.counter(
            f"{_PREFIX}RemoteFetchBytesPerSec_total",
            "Bytes of the remote tier that clients got",
            topic,
        )
        self._served = metrics.counter(
            "tidemark_remote_fetches_with_bytes_total",
            "Reads of the remote tier that gave bytes: they did not fail, were not late, had room",
        )
        self._errors = metrics.counter(
            f"{_PREFIX}RemoteFetchErrorsPerSec_total", "Reads of the remote tier that failed", topic
        )
        self._expired_reads = metrics.counter(
            "kafka_server_DelayedRemoteFetchMetrics_ExpiresPerSec_total",
            "Remote reads that nothing came for in time",
        )
        self._expired_lookups = metrics.counter(
            "kafka_server_DelayedRemoteListOffsetsMetrics_ExpiresPerSec_total",
            "Remote look-ups of offsets that ran out of time",
            ("topic", "partition"),
        )
        self._hosted: TopicMetrics | None = None
        self._expired: dict[str, set[str]] = {}  # partitions by topic

    def attach(self, hosted: TopicMetrics) -> None:
        """Take the hosted topics; only these are counted."""
        self._hosted = hosted
        hosted.on_forget.append(self._forget)

    def _is_hosted(self, topic: str) -> bool:
        return self._hosted is not None and topic in self._hosted

    def asked(self, topic: str) -> None:
        """Count a read of a client."""
        if self._is_hosted(topic):
            self._requests.inc(1, topic)

    def failed(self, topic: str) -> None:
        """Count a read that ended with an error."""
        if self._is_hosted(topic):
            self._errors.inc(1, topic)

    def got(self, topic: str, size_bytes: int) -> None:
        """Count bytes for a client."""
        if self._is_hosted(topic):
            self._bytes.inc(size_bytes, topic)
            self._served.inc()

    def expired(self) -> None:
        """Count a read without a result in time."""
        self._expired_reads.inc()

    def look_up_expired(self, where: TopicPartition) -> None:
        """Count a look-up without a result in time."""
        if self._is_hosted(where.topic):
            self._expired_lookups.inc(1, where.topic, str(where.partition))
            self._expired.setdefault(where.topic, set()).add(str(where.partition))

    def _forget(self, topic: str) -> None:
        for counter in (self._requests, self._bytes, self._errors):
            counter.remove(topic)
        for partition in self._expired.pop(topic, ()):
            self._expired_lookups.remove(topic, partition)


class RemoteStateMetrics:
    """Builds of followers' state from the remote tier: begun, and failed.

    An attempt that fails counts in both, as in Kafka.
    """

    def __init__(self, metrics: Registry) -> None:
        self._begun = metrics.counter(
            f"{_PREFIX}BuildRemoteLogAuxStateRequestsPerSec_total",
            "Attempts of followers to build their state from the remote tier",
            ("topic",),
        )
        self._failed = metrics.counter(
            f"{_PREFIX}BuildRemoteLogAuxStateErrorsPerSec_total",
            "Attempts of followers to build their state from the remote tier that failed",
            ("topic",),
        )
        self._hosted: TopicMetrics | None = None

    def attach(self, hosted: TopicMetrics) -> None:
        """Take the hosted topics; only these are counted."""
        self._hosted = hosted
        hosted.on_forget.append(self._forget)

    def building(self, topic: str) -> None:
        """Count a build that a follower begins."""
        self._count(self._begun, topic)

    def building_failed(self, topic: str) -> None:
        """Count a build that ended with an error."""
        self._count(self._failed, topic)

    def _count(self, counter: Counter, topic: str) -> None:
        if self._hosted is not None and topic in self._hosted:
            counter.inc(1, topic)

    def _forget(self, topic: str) -> None:
        self._begun.remove(topic)
        self._failed.remove(topic)
