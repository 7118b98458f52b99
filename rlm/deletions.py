"""Deletions in the store that keep failing, of led partitions and of deleted topics.

They lose nothing, but the objects cost money and their records stay. A deletion that fails for a
short time means that the store is away, which health reports elsewhere. Only one that fails for
long is reported here.
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
"""Bound of the deletions that are remembered; further ones are not."""


@dataclass(slots=True)
class _Failing:
    metadata: RemoteLogSegmentMetadata
    since_ms: int
    last_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class LongFailing:
    """Health answer about deletions that fail for long."""

    reason: HealthText
    is_unhealthy: bool


class Deletions:
    """Deletes objects of segments, in any thread, and remembers deletions that fail."""

    def __init__(
        self, storage: RemoteStorageManager, clock: Clock, late_ms: int, copy_max_ms: int
    ) -> None:
        """Use a storage plugin; a deletion that fails for longer than `late_ms` is reported."""
        self._storage, self._clock = storage, clock
        self._late_ms, self._unhealthy_ms = late_ms, max(copy_max_ms, 2 * late_ms)
        self._lock = threading.Lock()
        self._failing: dict[bytes, _Failing] = {}
        self._done = self._errors = 0

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete by the plugin; any exception of it that is no RemoteStorageError becomes one."""
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
        """Deletions and failed ones since the start, for the metrics page.

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
        """Another broker deletes the rest of the partition from now on."""
        with self._lock:
            for key, one in list(self._failing.items()):
                tip = one.metadata.topic_id_partition
                if (tip.topic_id, tip.partition) == (topic_id, partition):
                    del self._failing[key]

    def long_failing(self) -> LongFailing | None:
        """Deletions that have failed for long, as one answer; None if there are none.

        A deletion that was not tried again for longer than that is dropped: another broker does it
        now, or has done it.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            for key, one in list(self._failing.items()):
                if now_ms - one.last_ms > self._unhealthy_ms:
                    del self._failing[key]
            late = [one for one in self._failing.values() if now_ms - one.since_ms >= self._late_ms]
        if not late:
            return None
        first = late[0]  # the oldest: insertion order is the order of first failures
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
        """Number of segments whose last deletion failed, at most `NAMED_MAX`."""
        with self._lock:
            return len(self._failing)


def _of_the_interface(error: Exception) -> RemoteStorageError:
    return RemoteStorageError(
        f"the storage plugin raised {described(error)}; it should raise RemoteStorageError"
    )
