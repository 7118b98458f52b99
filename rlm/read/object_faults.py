"""Remote objects that differ from their copies, while their metadata says FINISHED.

An object that is missing, truncated or foreign is lost data. The client gets an error code. The
operator gets the object's name in the health answer, until the object is read without error or its
segment is no longer FINISHED. A failing store (an outage) is not reported here.

Safe for all threads: loads report from pool threads, the health report runs on the owner's. Must
not depend on the retries of reads (`loads`), or on their callers.
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
from runtime.incidents import Incident

log = logging.getLogger(__name__)

NAMED_MAX = 100
"""Objects that the health answer names; the rest is only counted."""

REMEMBERED_MAX = 1_000
"""Bound of the remembered objects; a further one is remembered at a later failure."""

LOG = "log"
Object = str
Span = tuple[int, int]
SegmentOf = Callable[[RemoteLogSegmentId], RemoteLogSegmentMetadata | None]


def index_name(kind: IndexType) -> Object:
    """Name of an index in the health answer: "offset index", "producer snapshot", ..."""
    if kind is IndexType.PRODUCER_SNAPSHOT:
        return "producer snapshot"
    return f"{kind.name.lower().replace('_', ' ')} index"


OFFSET_AND_TIME = "offset or time index"
"""They are parsed together; the error names the wrong one."""


@dataclass(slots=True)
class _Fault:
    """One missing or damaged object.

    Attributes:
        spans: Bytes [first, end) of a log that were wrong, and were not read correctly since. Empty
            if the object is missing, or is an index.
    """

    metadata: RemoteLogSegmentMetadata
    what: Object
    wrong: str
    is_missing: bool
    spans: list[Span] = field(default_factory=list)

    @property
    def unhealthy(self) -> HealthText:
        """The health reason."""
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
    """The missing and damaged objects, by segment and kind of object."""

    def __init__(
        self, segment_of: SegmentOf, store_is_missing: Callable[[], bool] = lambda: False
    ) -> None:
        """Remember no fault yet.

        Args:
            segment_of: The present metadata of a segment; raises MetadataNotReadyError where it is
                not known.
            store_is_missing: True if the reached store is not the one that has the objects.
        """
        self._segment_of, self._lock = segment_of, Lock()
        self._store_is_missing = store_is_missing
        self._faults: dict[tuple[bytes, Object], _Fault] = {}

    def __len__(self) -> int:
        """Number of missing and damaged objects."""
        return len(self._faults)

    # -- reports of readers

    def failed(
        self,
        metadata: RemoteLogSegmentMetadata,
        what: Object,
        error: BaseException,
        span: Span | None = None,
    ) -> None:
        """Note an object that is missing, or was damaged also when fetched past the caches.

        The segment is looked up again: a segment that was deleted meanwhile may lack its objects.

        Args:
            metadata: The segment, as the reader had it.
            what: `LOG`, or the name of an index.
            error: The cause; RemoteResourceNotFoundError means that the object is missing.
            span: Damaged bytes [first, end) of a log.
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
            tp = metadata.id.topic_id_partition.topic_partition
            log.error(Incident.REMOTE_OBJECT.line(partition=tp, fault=fault))

    def read_well(
        self, metadata: RemoteLogSegmentMetadata, what: Object, span: Span | None = None
    ) -> None:
        """Note that an object of the store was correct, for a log in the bytes `span`."""
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
        """Note that an object is in the store; its bytes are not checked yet."""
        fault = self._faults.get((metadata.id.id, what))
        if fault is not None and fault.is_missing:
            self.read_well(metadata, what)

    # -- health

    def forget(self, topic_id: bytes, partition: int) -> None:
        """The partition is no longer ours."""
        with self._lock:
            for key, fault in list(self._faults.items()):
                owner = fault.metadata.id.topic_id_partition
                if (owner.topic_id, owner.partition) == (topic_id, partition):
                    del self._faults[key]

    def unhealthy(self) -> list[PartitionHealth]:
        """Health reasons; objects whose segment is no longer FINISHED are forgotten."""
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
            return False  # the last known state holds
        return known is None or known.state is not SegmentState.COPY_SEGMENT_FINISHED


def _health(fault: _Fault) -> PartitionHealth:
    partition = fault.metadata.id.topic_id_partition
    return PartitionHealth(partition.topic_id, partition.partition, fault.unhealthy)


def _without(bad: Span, good: Span) -> list[Span]:
    """The parts of `bad` outside `good`; both are [first, end)."""
    parts = [(bad[0], min(bad[1], good[0])), (max(bad[0], good[1]), bad[1])]
    return [(first, end) for first, end in parts if first < end]
