"""Metrics of the tier, under Kafka's names in the JMX exporter's usual form.

Pool threads add to counters under a lock, since an addition is no atomic step. Counters by topic
exist for topics with a partition here. They go with its last partition, and a call that ends later
is not counted. Source: kafka.server:type=BrokerTopicMetrics and kafka.log.remote of Apache Kafka
4.3.
"""

import logging
import threading
from collections.abc import Callable, Iterator

from kafka_protocol.types import TopicIdPartition
from rlm.link.messages import DescribeMetrics, MetricsPiece
from runtime.log_context import Outage
from runtime.metrics import Counter, Registry

log = logging.getLogger(__name__)

PartitionKey = tuple[bytes, int]
_TOPIC = ("topic",)
_PREFIX = "kafka_server_BrokerTopicMetrics_"
_OPERATIONS = ("copy", "fetch", "fetch_index", "delete")
_KINDS = ("copy", "expire")
_COMPUTATION = "RemoteLogSizeComputationTime"
_MEASURED = {
    "copy_lag_bytes": "RemoteCopyLagBytes",
    "copy_lag_segments": "RemoteCopyLagSegments",
    "delete_lag_bytes": "RemoteDeleteLagBytes",
    "delete_lag_segments": "RemoteDeleteLagSegments",
    "remote_bytes": "RemoteLogSizeBytes",
    "remote_segments": "RemoteLogMetadataCount",
}


class Telemetry:
    """Counters and gauges of one tier process."""

    def __init__(self, registry: Registry | None = None, store: str = "") -> None:
        """Count into a registry; `store` names the storage plugin's class."""
        self._store = store
        self.registry = registry or Registry()
        self._lock = threading.Lock()
        self._topics: dict[str, set[PartitionKey]] = {}
        self.copy_outage = Outage(log, "copying to the remote store")
        self.delete_outage = Outage(log, "deleting in the remote store")
        self.fetch_outage = Outage(log, "reading from the remote store")
        counter = self._topic_counter
        self._copy_bytes = counter("RemoteCopyBytesPerSec", "Bytes copied to the remote store")
        self._copy_requests = counter(
            "RemoteCopyRequestsPerSec", "Segments copied or tried to copy"
        )
        self._copy_errors = counter("RemoteCopyErrorsPerSec", "Copies that failed")
        self._delete_requests = counter("RemoteDeleteRequestsPerSec", "Remote segments deleted")
        self._delete_errors = counter("RemoteDeleteErrorsPerSec", "Deletions that failed")
        self._corrupt = self.registry.counter(
            "tidemark_remote_corrupt_chunks_total", "Chunks whose bytes were wrong", _TOPIC
        )
        self._passes = self.registry.counter(
            "tidemark_remote_passes_total",
            "Passes of copying and expiring that ended, also those that failed",
            ("topic", "kind"),
        )
        self._by_topic = (
            self._copy_bytes,
            self._copy_requests,
            self._copy_errors,
            self._delete_requests,
            self._delete_errors,
            self._corrupt,
        )
        self._totals = {
            "remote_copy_bytes": self._copy_bytes,
            "remote_copy_requests": self._copy_requests,
            "remote_copy_errors": self._copy_errors,
        }
        labels = ("store", "operation", "topic")
        self._store_requests = self.registry.counter(
            "tidemark_remote_store_requests_total",
            "Calls of the storage plugin: copy, fetch (a range of a log), fetch_index, delete",
            labels,
        )
        self._store_errors = self.registry.counter(
            "tidemark_remote_store_errors_total", "Calls of the storage plugin that failed", labels
        )
        self._store_bytes = self.registry.counter(
            "tidemark_remote_store_bytes_total",
            "Bytes that calls of the storage plugin brought to the store or from it",
            labels,
        )
        self._store_times = self.registry.histogram(
            "tidemark_remote_store_request_ms",
            "Milliseconds that calls of the storage plugin took, their bytes included",
            labels,
        )
        self._cache = self.registry.counter(
            "tidemark_remote_chunk_cache_requests_total",
            "Chunks that a reader came to, by level of the cache; a hit was there already",
            ("level", "result"),
        )
        self._evictions = self.registry.counter(
            "tidemark_remote_chunk_cache_evictions_total",
            "Chunks that freed memory for others",
            ("level",),
        )
        self._ahead = self.registry.counter(
            "tidemark_remote_read_ahead_bytes_total",
            "Bytes loaded ahead of readers: asked for, then used, or evicted before (wasted)",
            ("outcome",),
        )
        self._read_times = self.registry.histogram(
            "kafka_log_remote_RemoteLogManager_RemoteLogReaderFetchRateAndTimeMs",
            "Milliseconds from a read's arrival in the tier to its answer",
        )
        gauges = {
            "RemoteCopyLagBytes": "Bytes of closed segments not copied yet",
            "RemoteCopyLagSegments": "Closed segments not copied yet",
            "RemoteDeleteLagBytes": "Bytes of remote segments to be deleted",
            "RemoteDeleteLagSegments": "Remote segments to be deleted",
            "RemoteLogSizeBytes": "Bytes of finished remote segments on the chain",
            "RemoteLogMetadataCount": "Remote segments known to the metadata manager",
            _COMPUTATION: "Milliseconds of the last computation of the remote log's size",
        }
        self._gauges = {
            name: self.registry.gauge(_PREFIX + name, help_text, ("topic", "partition"))
            for name, help_text in gauges.items()
        }

    def _topic_counter(self, name: str, help_text: str) -> Counter:
        return self.registry.counter(f"{_PREFIX}{name}_total", help_text, _TOPIC)

    def _add(self, counter: Counter, topic: str, amount: float = 1) -> None:
        with self._lock:
            if topic in self._topics:
                counter.inc(amount, topic)

    def totals(self) -> dict[str, float]:
        """Totals of copies over all topics for the broker's page; none of them ever falls."""
        with self._lock:
            return {name: counter.total() for name, counter in self._totals.items()}

    def assigned(self, tip: TopicIdPartition) -> None:
        """Note an assigned partition of the topic."""
        with self._lock:
            self._topics.setdefault(tip.topic, set()).add((tip.topic_id, tip.partition))

    def forget(self, tip: TopicIdPartition) -> None:
        """Note that the partition is not assigned any more."""
        topic = tip.topic
        with self._lock:
            left = self._topics.get(topic, set())
            left.discard((tip.topic_id, tip.partition))
            if not left:
                self._topics.pop(topic, None)
                self._forget_topic(topic)
        self.measured_elsewhere(tip)

    def measured_elsewhere(self, tip: TopicIdPartition) -> None:
        """Remove the partition's gauges: another broker measures them now."""
        with self._lock:
            for gauge in self._gauges.values():
                gauge.remove(tip.topic, str(tip.partition))

    def _forget_topic(self, topic: str) -> None:
        for counter in self._by_topic:
            counter.remove(topic)
        for kind in _KINDS:
            self._passes.remove(topic, kind)
        for operation in _OPERATIONS:
            labels = (self._store, operation, topic)
            for counter in (self._store_requests, self._store_errors, self._store_bytes):
                counter.remove(*labels)
            self._store_times.remove(*labels)

    def copied(self, topic: str, size_bytes: int) -> None:
        """Count a copied segment of `size_bytes`."""
        self._add(self._copy_requests, topic)
        self._add(self._copy_bytes, topic, size_bytes)
        self.copy_outage.succeeded()

    def copy_failed(self, topic: str, error: Exception) -> None:
        """Count a failed copy."""
        self._add(self._copy_requests, topic)
        self._add(self._copy_errors, topic)
        self.copy_outage.failed(error)

    def deleted(self, topic: str) -> None:
        """Count a segment whose objects were deleted."""
        self._add(self._delete_requests, topic)
        self.delete_outage.succeeded()

    def delete_failed(self, topic: str, error: Exception) -> None:
        """Count a failed deletion."""
        self._add(self._delete_requests, topic)
        self._add(self._delete_errors, topic)
        self.delete_outage.failed(error)

    def passed(self, topic: str, kind: str) -> None:
        """Count a pass over one partition that has ended; called on the owner's thread."""
        with self._lock:
            if topic in self._topics:
                self._passes.inc(1, topic, kind)

    def read_took(self, took_ms: int) -> None:
        """Record the duration of a client's read, failed ones included; on the owner's thread."""
        self._read_times.observe(took_ms)

    def store_called(
        self, operation: str, topic: str, size_bytes: int, took_ms: int, *, failed: bool = False
    ) -> None:
        """Record an ended call of the storage plugin; `size_bytes` were moved."""
        assert operation in _OPERATIONS, operation
        labels = (self._store, operation, topic)
        with self._lock:
            if topic not in self._topics:
                return
            self._store_requests.inc(1, *labels)
            self._store_bytes.inc(size_bytes, *labels)
            self._store_times.observe(took_ms, *labels)
            if failed:
                self._store_errors.inc(1, *labels)

    def cache_asked(self, level: str, *, is_hit: bool) -> None:
        """Count a reader's arrival at a chunk, which was in the cache (memory or disk) or not."""
        with self._lock:
            self._cache.inc(1, level, "hit" if is_hit else "miss")

    def cache_evicted(self, level: str) -> None:
        """Count an evicted chunk."""
        with self._lock:
            self._evictions.inc(1, level)

    def ahead(self, outcome: str, size_bytes: int) -> None:
        """Count bytes loaded ahead that were requested, used or wasted; on the owner's thread."""
        self._ahead.inc(size_bytes, outcome)

    def corrupt(self, topic: str) -> None:
        """Count wrong bytes of a remote segment, also wrong after a second fetch."""
        self._add(self._corrupt, topic)

    def validated(self, tip: TopicIdPartition, took_ms: int) -> None:
        """Record the time that it took to list all remote segments of a partition."""
        self._set(tip, _COMPUTATION, took_ms)

    def measured(self, tip: TopicIdPartition, **seen: int | None) -> None:
        """Record measurements of a partition from a pass, by the names in `_MEASURED`."""
        for name, value in seen.items():
            if value is not None:
                self._set(tip, _MEASURED[name], value)

    def _set(self, tip: TopicIdPartition, name: str, value: float) -> None:
        with self._lock:
            if (tip.topic_id, tip.partition) in self._topics.get(tip.topic, ()):
                self._gauges[name].set(value, tip.topic, str(tip.partition))

    def gauge(self, name: str, help_text: str, fn: Callable[[], float]) -> None:
        """Add a value that is computed for each page."""
        self.registry.gauge(name, help_text, fn=fn)


class MetricsPages:
    """Makes one page at a time: a request for another page ends the one before."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._number = 0
        self._pieces: Iterator[bytes] = iter(())

    def piece(self, asked: DescribeMetrics) -> MetricsPiece:
        """The next piece of the requested page."""
        if asked.page != self._number:
            self._number, self._pieces = asked.page, self._registry.pieces()
        content = next(self._pieces, None)
        return MetricsPiece(content or b"", is_last=content is None)
