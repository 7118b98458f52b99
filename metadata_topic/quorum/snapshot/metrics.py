"""Metrics of snapshots; names are Kafka's, those of KIP-630, and ours.

Today's Kafka lacks KIP-630's four names and has SnapshotEmitter instead; both are here.
"""

from collections.abc import Callable
from typing import Final

from runtime.clock import Clock
from runtime.metrics import Registry

_EMITTER: Final = "kafka_server_SnapshotEmitter_"
_CONTROLLER: Final = "kafka_controller_KafkaController_"


class SnapshotMetrics:
    """Metrics of one node's snapshots.

    Attributes:
        gen_latency_ms: Duration of making a snapshot.
        failures: Snapshots that could not be made.
    """

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        *,
        high_watermark: Callable[[], int],
        newest_end: Callable[[], int],
    ) -> None:
        """Make the metrics.

        Args:
            registry: Gets the metrics.
            clock: Of the process, whose start is now.
            high_watermark: Returns the first offset not known to be committed.
            newest_end: Returns the end (exclusive) of the newest snapshot, 0 without one.
        """
        self._clock = clock
        self._generated_at_ms = clock.monotonic_ms()
        self._generated_bytes = self._newest_bytes = 0
        self.gen_latency_ms = registry.histogram(
            f"{_CONTROLLER}GenSnapshotLatencyMs", "How long it took to make a snapshot."
        )
        self.failures = registry.counter(
            "tidemark_metadata_snapshot_failures_total", "Snapshots that could not be made."
        )
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            f"{_EMITTER}LatestSnapshotGeneratedBytes": (
                "Size of the newest snapshot that this node made; of the one it began with or "
                "loaded, if it made none.",
                lambda: self._generated_bytes or self._newest_bytes,
            ),
            f"{_EMITTER}LatestSnapshotGeneratedAgeMs": (
                "How long ago this node made its newest snapshot, or was started.",
                lambda: clock.monotonic_ms() - self._generated_at_ms,
            ),
            f"{_CONTROLLER}SnapshotSizeBytes": (
                "Size of the newest snapshot on this node.",
                lambda: self._newest_bytes,
            ),
            f"{_CONTROLLER}SnapshotLag": (
                "Offsets between the newest snapshot on this node and the high watermark.",
                lambda: max(0, high_watermark() - newest_end()),
            ),
        }
        for name, (text, fn) in gauges.items():
            registry.gauge(name, text, fn=fn)

    def found(self, size_bytes: int) -> None:
        """Take the size of the newest snapshot on the disk."""
        self._newest_bytes = size_bytes

    def generated(self, size_bytes: int, took_ms: int) -> None:
        """Count a snapshot made by this node."""
        self._generated_bytes = self._newest_bytes = size_bytes
        self._generated_at_ms = self._clock.monotonic_ms()
        self.gen_latency_ms.observe(took_ms)
