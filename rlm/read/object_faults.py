"""Remote objects that cannot be what was copied, while their metadata says FINISHED.

An object that is missing, short or foreign is lost data: the client gets its error code, and the
operator gets the object's name in the health answer until the object is read well again or its
segment is no longer FINISHED. A store that fails for now (an outage) is not this.

Safe for all threads: loads report from pool threads, the health report runs on the owner's.
Must not know: how reads are retried (`loads`), and who asked.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from kafka_protocol.wire.primitives import uuid_to_text
from rlm.link.messages import PartitionHealth
from rlmm.api import MetadataNotReadyError
from rsm_plugins.api import RemoteResourceNotFoundError
from rsm_plugins.segment import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
)
from runtime.health_reasons import HealthReason, HealthText

log = logging.getLogger(__name__)

NAMED_MAX = 100
"""Objects that the health answer names; the others are counted."""

REMEMBERED_MAX = 1_000
"""Objects that are remembered; a further one is remembered when it is met again."""

LOG = "log"
Object = str
Span = tuple[int, int]
SegmentOf = Callable[[RemoteLogSegmentId], RemoteLogSegmentMetadata | None]


def index_name(kind: IndexType) -> Object:
    """What the health answer calls an index: "offset index", "producer snapshot", ..."""
    if kind is IndexType.PRODUCER_SNAPSHOT:
        return "producer snapshot"
    return f"{kind.name.lower().replace('_', ' ')} index"


OFFSET_AND_TIME = "offset or time index"
"""They are parsed together: which of the two is wrong the reason says."""


@dataclass(slots=True)
class _Fault:
    """One object that is not well.

    Attributes:
        spans: bytes [first, end) of a log that were wrong and were not read well since; empty
            where the object is missing, or is an index.
    """

    metadata: RemoteLogSegmentMetadata
    what: Object
    wrong: str
    is_missing: bool
    spans: list[Span] = field(default_factory=list)

    @property
    def unhealthy(self) -> HealthText:
        """What health says of it."""
        return HealthReason.OBJECT.text(**self._facts, offset=self.metadata.end_offset + 1)

    @property
    def _facts(self) -> dict[str, object]:
        state = "missing in the store" if self.is_missing else "damaged in the store"
        return {
            "segment": uuid_to_text(self.metadata.id.id),
            "first": self.metadata.start_offset,
            "fault": f"its {self.what} is {state}: {self.wrong}",
        }

    def __str__(self) -> str:
        return HealthReason.OBJECT.said(**self._facts)


class ObjectFaults:
    """The objects that are not well, by segment and kind of object."""

    def __init__(
        self, segment_of: SegmentOf, store_is_missing: Callable[[], bool] = lambda: False
    ) -> None:
        """Nothing is wrong so far.

        Args:
            segment_of: looks a segment up in the metadata as it is now; raises
                MetadataNotReadyError where that is not known.
            store_is_missing: whether this is not the store that has the objects.
        """
        self._segment_of, self._lock = segment_of, Lock()
        self._store_is_missing = store_is_missing
        self._faults: dict[tuple[bytes, Object], _Fault] = {}

    def __len__(self) -> int:
        """Objects that are not well."""
        return len(self._faults)

    # -- reports of those who read

    def failed(
        self,
        metadata: RemoteLogSegmentMetadata,
        what: Object,
        error: BaseException,
        span: Span | None = None,
    ) -> None:
        """An object is missing, or was damaged also when it was fetched past the caches.

        The segment is looked up again: one that was deleted meanwhile may lack its objects.

        Args:
            metadata: the segment, as the reader knew it.
            what: `LOG`, or the name of an index.
            error: why; RemoteResourceNotFoundError means that it is missing.
            span: bytes [first, end) of a log that are damaged.
        """
        is_missing = isinstance(error, RemoteResourceNotFoundError)
        key = (metadata.id.id, what)
        if self._store_is_missing() or self._is_over(metadata):
            return
        with self._lock:
            known = self._faults.get(key)
            if known is None and len(self._faults) >= REMEMBERED_MAX:
                return
            fault = _Fault(metadata, what, str(error) or type(error).__name__, is_missing)
            if not is_missing and span is not None:
                fault.spans = [span, *(known.spans if known is not None else ())]
            self._faults[key] = fault
        if known is None or known.is_missing != is_missing:
            log.error("%s: %s", metadata.id.topic_id_partition.topic_partition, fault)

    def read_well(
        self, metadata: RemoteLogSegmentMetadata, what: Object, span: Span | None = None
    ) -> None:
        """An object came from the store and was right, in the bytes `span` of a log."""
        if not self._faults:
            return
        key = (metadata.id.id, what)
        with self._lock:
            fault = self._faults.get(key)
            if fault is None:
                return
            if span is not None:
                fault.spans = [left for each in fault.spans for left in _without(each, span)]
            if not fault.spans or span is None:
                del self._faults[key]
                log.info("%s: well again: %s", metadata.id.topic_id_partition, fault)

    def is_there(self, metadata: RemoteLogSegmentMetadata, what: Object) -> None:
        """An object came from the store; whether it is right is still to be seen."""
        fault = self._faults.get((metadata.id.id, what))
        if fault is not None and fault.is_missing:
            self.read_well(metadata, what)

    # -- health

    def forget(self, topic_id: bytes, partition: int) -> None:
        """The partition is not ours any more."""
        with self._lock:
            for key, fault in list(self._faults.items()):
                owner = fault.metadata.id.topic_id_partition
                if (owner.topic_id, owner.partition) == (topic_id, partition):
                    del self._faults[key]

    def unhealthy(self) -> list[PartitionHealth]:
        """What to say; objects whose segment is no longer FINISHED are forgotten."""
        with self._lock:
            faults = list(self._faults.items())
        still = []
        for key, fault in faults:
            if self._is_over(fault.metadata):
                with self._lock:
                    self._faults.pop(key, None)
            else:
                still.append(fault)
        unhealthy = [_health(fault) for fault in still[:NAMED_MAX]]
        if len(still) > NAMED_MAX:
            more = HealthReason.MORE_OBJECTS.text(count=len(still) - NAMED_MAX)
            unhealthy.append(PartitionHealth(b"", -1, more))
        return unhealthy

    def _is_over(self, metadata: RemoteLogSegmentMetadata) -> bool:
        try:
            known = self._segment_of(metadata.id)
        except MetadataNotReadyError:
            return False  # what was last known holds
        return known is None or known.state is not SegmentState.COPY_SEGMENT_FINISHED


def _health(fault: _Fault) -> PartitionHealth:
    partition = fault.metadata.id.topic_id_partition
    return PartitionHealth(partition.topic_id, partition.partition, fault.unhealthy)


def _without(bad: Span, good: Span) -> list[Span]:
    """The parts of [first, end) that `good` leaves."""
    parts = [(bad[0], min(bad[1], good[0])), (max(bad[0], good[1]), bad[1])]
    return [(first, end) for first, end in parts if first < end]
