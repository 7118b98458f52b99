"""What is counted of loading snapshots; the first name is KIP-630's, the others are Kafka's."""

from typing import Final

from runtime.metrics import Registry

_LOADER: Final = "kafka_server_MetadataLoader_"


class LoaderMetrics:
    """Numbers of one node's loader.

    Attributes:
        load_latency_ms: from the name of a fetched snapshot to the image made of it.
        loads: images that were replaced by a snapshot.
    """

    def __init__(self, registry: Registry) -> None:
        """Make the metrics."""
        self.load_latency_ms = registry.histogram(
            "kafka_controller_KafkaController_LoadSnapshotLatencyMs",
            "How long it took to load a fetched snapshot.",
        )
        self.loads = registry.counter(
            f"{_LOADER}HandleLoadSnapshotCount", "Snapshots that were loaded while the node ran."
        )
        self.loaded_bytes = registry.counter(
            "tidemark_metadata_snapshot_loaded_bytes_total", "Bytes of them."
        )

    def loaded(self, size_bytes: int, took_ms: int) -> None:
        """An image was replaced by a snapshot."""
        self.load_latency_ms.observe(took_ms)
        self.loads.inc()
        self.loaded_bytes.inc(size_bytes)
