"""Deletions in the store that continue failing, of led partitions and of deleted topics alike.

Nothing is lost by them, but the bill grows, and records stay that should have gone. One that fails
for a while is a store that is away, which is told otherwise; one that fails for long is told here.
"""

import threading
from dataclasses import dataclass
from typing import Final

from kafka_protocol.wire.primitives import uuid_to_text
from rsm_plugins.api import RemoteStorageError, RemoteStorageManager
from rsm_plugins.segment import RemoteLogSegmentMetadata
from runtime.clock import Clock
from runtime.health_reasons import HealthReason, HealthText
from runtime.raised import described

NAMED_MAX: Final = 1_000
"""Of more than that the first are known, which are what health names."""


@dataclass(slots=True)
class _Failing:
    metadata: RemoteLogSegmentMetadata
    since_ms: int
    last_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class LongFailing:
    """What health says of deletions that fail for long."""

    reason: HealthText
    is_unhealthy: bool


class Deletions:
    """Deletes objects of segments, in any thread, and knows which of that continues failing."""

    def __init__(
        self, storage: RemoteStorageManager, clock: Clock, late_ms: int, copy_max_ms: int
    ) -> None:
        """Delete by a plugin; `late_ms`: a deletion that fails for longer is told of."""
        self._storage, self._clock = storage, clock
        self._late_ms, self._unhealthy_ms = late_ms, max(copy_max_ms, 2 * late_ms)
        self._lock = threading.Lock()
        self._failing: dict[bytes, _Failing] = {}
        self._done = self._errors = 0

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """See RemoteStorageManager; whatever else the plugin raises becomes its error."""
        try:
            self._storage.delete_log_segment_data(metadata)
        except RemoteStorageError as error:
            self._failed(metadata, str(error) or repr(error))
            raise
        except Exception as error:
            told = _of_the_interface(error)
            self._failed(metadata, str(told))
            raise told from error
        with self._lock:
            self._done += 1
            self._failing.pop(metadata.id.id, None)

    def totals(self) -> dict[str, float]:
        """How many there were, and how many failed; like `Telemetry.totals`, for the page.

        Metrics by topic lack those of deleted topics.
        """
        with self._lock:
            return {
                "remote_delete_requests": self._done + self._errors,
                "remote_delete_errors": self._errors,
            }

    def _failed(self, metadata: RemoteLogSegmentMetadata, error: str) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._errors += 1
            known = self._failing.get(metadata.id.id)
            if known is not None:
                known.last_ms, known.error = now_ms, error
            elif len(self._failing) < NAMED_MAX:
                self._failing[metadata.id.id] = _Failing(metadata, now_ms, now_ms, error)

    def forget(self, topic_id: bytes, partition: int) -> None:
        """Another broker deletes what is left of the partition."""
        with self._lock:
            for key, one in list(self._failing.items()):
                tip = one.metadata.topic_id_partition
                if (tip.topic_id, tip.partition) == (topic_id, partition):
                    del self._failing[key]

    def long_failing(self) -> LongFailing | None:
        """What has failed for long; what nobody has tried again for longer than that is excluded.

        Then another broker deletes it, or has deleted it.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            for key, one in list(self._failing.items()):
                if now_ms - one.last_ms > self._unhealthy_ms:
                    del self._failing[key]
            late = [one for one in self._failing.values() if now_ms - one.since_ms >= self._late_ms]
        if not late:
            return None
        first = late[0]  # the oldest: they are in the order in which they began to fail
        metadata, failed_ms = first.metadata, now_ms - first.since_ms
        reason = HealthReason.DELETIONS.text(
            count=len(late),
            minutes=failed_ms // 60_000,
            segment=uuid_to_text(metadata.id.id),
            partition=metadata.topic_id_partition.topic_partition,
            first=metadata.start_offset,
            error=first.error,
        )
        return LongFailing(reason, is_unhealthy=failed_ms >= self._unhealthy_ms)

    def failing(self) -> int:
        """How many segments' deletion failed when it was last tried, 1,000 at most."""
        with self._lock:
            return len(self._failing)


def _of_the_interface(error: Exception) -> RemoteStorageError:
    return RemoteStorageError(
        f"the storage plugin raised {described(error)}; it should raise RemoteStorageError"
    )
