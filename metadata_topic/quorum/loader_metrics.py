"""Metrics of the metadata loader; KIP-630's names and those of today's Kafka."""

from collections.abc import Callable
from typing import Final

from metadata_topic.image.image import MetadataImage
from runtime.clock import Clock
from runtime.metrics import Recent, Registry

_LOADER: Final = "kafka_server_MetadataLoader_"
_BROKER: Final = "kafka_server_broker_metadata_metrics_"


class LoaderMetrics:
    """Metrics of one node's loader.

    Attributes:
        load_latency_ms: From the fetched snapshot's final name to its image.
        loads: Images replaced by a snapshot.
        loaded_bytes: Size of these snapshots.
        errors: Records that could not be read or replayed; the first ends the node.
        apply_errors: Images that a subscriber failed on; the first ends the node.
        busy_ms: Duration of each slice of reading, replaying and publishing.
    """

    def __init__(
        self, registry: Registry, clock: Clock, image: Callable[[], MetadataImage]
    ) -> None:
        """Make the metrics.

        Args:
            registry: Gets the metrics.
            clock: Wall time, for the age of the last record.
            image: Returns the newest image.
        """
        self.load_latency_ms = registry.histogram(
            "kafka_controller_KafkaController_LoadSnapshotLatencyMs",
            "How long it took to load a fetched snapshot.",
        )
        self.loads = registry.counter(
            f"{_LOADER}HandleLoadSnapshotCount", "Snapshots that were loaded while the node ran."
        )
        self.loaded_bytes = registry.counter(
            "tidemark_metadata_snapshot_loaded_bytes_total",
            "Bytes of snapshots that were loaded while the node ran.",
        )
        self.errors = registry.counter(
            f"{_BROKER}metadata_load_error_count",
            "Committed records that could not be read or replayed.",
        )
        self.apply_errors = registry.counter(
            f"{_BROKER}metadata_apply_error_count",
            "Images that were published and that a part of this node could not follow.",
        )
        self.busy_ms = Recent(clock)
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            f"{_LOADER}CurrentMetadataVersion": (
                "Finalised level of metadata.version; 0 before the first records.",
                lambda: image().metadata_version,
            ),
            f"{_LOADER}AvgIdleRatio": (
                "Part of the last minute in which the loader had nothing to do.",
                lambda: self.busy_ms.idle_ratio,
            ),
            f"{_BROKER}last_applied_record_offset": (
                "Last metadata record contained in the image; -1 none.",
                lambda: image().provenance.offset,
            ),
            f"{_BROKER}last_applied_record_timestamp": (
                "Time of the last record in the image, in ms; -1 none.",
                lambda: image().provenance.timestamp_ms,
            ),
            f"{_BROKER}last_applied_record_lag_ms": (
                "Age of the last record in the image.",
                lambda: max(0, clock.wall_ms() - image().provenance.timestamp_ms),
            ),
        }
        for name, (text, fn) in gauges.items():
            registry.gauge(name, text, fn=fn)
        registry.gauge(
            f"{_LOADER}FinalizedLevel",
            "Finalised levels of features.",
            ("featureName",),
            lambda: {(name,): float(level) for name, level in image().features.items()},
        )

    def loaded(self, size_bytes: int, took_ms: int) -> None:
        """Count an image that was replaced by a snapshot."""
        self.load_latency_ms.observe(took_ms)
        self.loads.inc()
        self.loaded_bytes.inc(size_bytes)
