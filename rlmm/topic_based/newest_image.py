"""The cluster's image as the remover goes by it: asked for anew where the last one is too old."""

from threading import Lock

from rlmm.topic_based.removal_policy import ClusterImage
from rlmm.topic_based.removal_ports import RemovedTopics
from runtime.clock import Clock

IMAGE_AGE_MAX_MS = 1_000
"""An image is asked for anew where the last one is older."""


class NewestImage:
    """One image for all partitions; asked for from many threads, one of which asks the cluster."""

    def __init__(self, cluster: RemovedTopics, cluster_id: str, clock: Clock) -> None:
        """Images of a cluster with another id are not believed."""
        self._cluster, self._cluster_id, self._clock = cluster, cluster_id, clock
        self._lock = Lock()
        self._image: ClusterImage | None = None
        self._asked_ms = 0

    def ask(self) -> ClusterImage | None:
        """The newest there is; None where there is none to be believed."""
        with self._lock:
            return self._ask()

    def recent(self) -> ClusterImage | None:
        """The same, or one that was asked for a moment ago."""
        with self._lock:
            age_ms = self._clock.monotonic_ms() - self._asked_ms
            if self._image is None or age_ms > IMAGE_AGE_MAX_MS:
                return self._ask()
            return self._image

    def _ask(self) -> ClusterImage | None:
        image = self._cluster.image()
        self._asked_ms = self._clock.monotonic_ms()
        self._image = None if image is None or image.cluster_id != self._cluster_id else image
        return self._image
