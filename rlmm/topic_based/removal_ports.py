"""Collaborators of the remover of deleted topics: its cluster, the store, its settings."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.errors import TidemarkError
from rlmm.topic_based.removal_policy import ClusterImage
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.executors import make_mutex

IMAGE_AGE_MAX_MS = 1_000
"""Older images are requested again."""


class NotTakenError(TidemarkError):
    """The cluster's metadata log did not take a record."""


WatchCall = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Watches a plugin call while its block runs, and calls its argument if the call hangs."""


class RemovedTopics(Protocol):
    """The cluster, as the remover uses it."""

    def image(self) -> ClusterImage | None:
        """The newest committed image, of a high watermark that was confirmed after this call.

        None while there is none.
        """
        ...

    def topics_emptied(self, topic_ids: Collection[bytes]) -> None:
        """Nothing is left of these topics: they leave the list; returns once that is committed.

        Raises:
            NotTakenError: It is not committed.
        """
        ...


class DeletesSegments(Protocol):
    """The side of a storage plugin that the remover needs."""

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete the segment's objects, with the promises of RemoteStorageManager."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoverConfig:
    """Settings of a remover.

    Attributes:
        cluster_id: Of this cluster; images of another one are ignored.
        node_id: This broker, written into records.
        grace_ms: From PARTITION_MARKED to PARTITION_STARTED.
        copy_max_ms: The copy maximum of the cluster.
        write_wait_ms: How long a pass waits for one write.
    """

    cluster_id: str
    node_id: int
    grace_ms: int = 60_000
    copy_max_ms: int = 3_600_000
    write_wait_ms: int = 120_000


def _always() -> bool:
    return True


def _unwatched(_: Callable[[], None]) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGate:
    """Checks between a remover and the store.

    Attributes:
        watch_call: Watches each call of the plugin.
        may_write: True if the store may be written to.
    """

    watch_call: WatchCall = _unwatched
    may_write: Callable[[], bool] = _always


OPEN_GATE = StoreGate()


class NewestImage:
    """One image for all partitions, from many threads; one of them requests it from the cluster."""

    def __init__(self, cluster: RemovedTopics, cluster_id: str, clock: Clock) -> None:
        """Images of a cluster with another id are ignored."""
        self._cluster, self._cluster_id, self._clock = cluster, cluster_id, clock
        self._lock = make_mutex()
        self._image: ClusterImage | None = None
        self._asked_ms = 0

    def ask(self) -> ClusterImage | None:
        """The newest image, None if there is none of this cluster."""
        with self._lock:
            return self._ask()

    def recent(self) -> ClusterImage | None:
        """The newest image, or one that was requested a moment ago."""
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
