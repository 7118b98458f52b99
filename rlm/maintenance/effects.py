"""Effects of a task: a generator yields one of these and is sent its result.

A pool thread performs them (`rlm.maintenance.performer`). The simulator performs them in any order,
and may stop after any of them. Each docstring ends with the type of its result.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from kafka_protocol.types import EpochEntry
from rlm.link import messages
from rlm.link.messages import OpenedSegment
from rlmm.api import SegmentUpdate
from rsm_plugins.segment import LogSegmentData, RemoteLogSegmentMetadata
from runtime.health_reasons import HEALTHY, HealthText


@dataclass(frozen=True, slots=True)
class Validate:
    """Read the local log's description and the remote segments -> LogFacts.

    Attributes:
        closed_segments: Include the closed local segments from the end of the copied run on.
    """

    closed_segments: bool = True


@dataclass(frozen=True, slots=True)
class WallMs:
    """Read the wall clock -> ms since 1970."""


@dataclass(frozen=True, slots=True)
class OpenLocal:
    """Open a closed local segment -> LocalSegment."""

    base_offset: int


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """An opened local segment: the broker's answer, and its files at position 0."""

    answer: OpenedSegment
    data: LogSegmentData


@dataclass(frozen=True, slots=True)
class BeginCopy:
    """Draw a new segment id and start the copy maximum's clock -> 16 bytes."""


@dataclass(frozen=True, slots=True)
class AddStarted:
    """Write COPY_SEGMENT_STARTED; ends once it is read back and accepted -> None."""

    metadata: RemoteLogSegmentMetadata
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class PutObjects:
    """Copy the objects, unless the copy maximum has passed -> custom metadata or None."""

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read the copy back -> str: the parts that are not found (yet); "" if all are there.

    Attributes:
        metadata: With its custom metadata.
        data: The copied files.
        again_in_ms: Time until the next try. A missing part is an error if the copy maximum passes
            before.
    """

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData
    again_in_ms: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, or until the ownership ends -> None."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class UpdateState:
    """Write a later state of a known segment; ends once it is read back and accepted -> None."""

    update: SegmentUpdate
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Delete all objects of the segment -> None."""

    metadata: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class StartedSeenMs:
    """Time at which STARTED of the segment was first seen here -> wall clock ms."""

    metadata: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class WasDeletedOnce:
    """Look up if this process has deleted the segment's objects already -> bool."""

    segment_id: bytes


@dataclass(frozen=True, slots=True)
class MoveStart:
    """Have the broker move the log start; ends once checkpointed and fsynced -> bool: taken."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Recall:
    """Read the facts of accepted records beyond the segments' states -> PartitionHistory."""


@dataclass(frozen=True, slots=True)
class ReadEpochs:
    """Read a segment's LEADER_EPOCH index -> entries, None where it is missing or damaged."""

    metadata: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Restore:
    """Have the broker use an epoch chain; ends once it is fsynced -> bool: taken."""

    chain: Sequence[EpochEntry]


@dataclass(frozen=True, slots=True)
class Carry:
    """Carry the log start offset, which is checkpointed, in each further record -> None."""

    log_start: int


@dataclass(frozen=True, slots=True)
class Report:
    """Send a report about the partition to the broker -> bool: the broker uses it now."""

    report: messages.Report


@dataclass(frozen=True, slots=True)
class NeedEpoch:
    """Have the controller raise the leader epoch above `used` -> str: why it cannot, or ""."""

    used: int


@dataclass(frozen=True, slots=True)
class Measure:
    """Publish measurements of a pass -> None."""

    copy_lag_segments: int | None = None
    copy_lag_bytes: int | None = None
    delete_lag_segments: int | None = None
    delete_lag_bytes: int | None = None
    remote_bytes: int | None = None
    remote_segments: int | None = None


Effect: TypeAlias = (
    Validate
    | WallMs
    | OpenLocal
    | BeginCopy
    | AddStarted
    | PutObjects
    | ReadBack
    | Pause
    | UpdateState
    | DeleteObjects
    | StartedSeenMs
    | WasDeletedOnce
    | MoveStart
    | Recall
    | ReadEpochs
    | Restore
    | Carry
    | Report
    | NeedEpoch
    | Measure
)

R = TypeVar("R")
# The type of the sent result depends on the effect; each `yield` names the type it expects.
Task: TypeAlias = Generator[Effect, Any, R]


@dataclass(frozen=True, slots=True)
class PassResult:
    """Result of a pass that raised nothing.

    Attributes:
        unhealthy: The health reason.
        again_in_ms: Start the next pass earlier than at the next interval; 0: the pass is not
            complete.
        store_errors: Calls of the plugin that failed while the pass continued.
        is_held: Work is left that waits until the store works again.
        is_throttled: Work is left that waits until the copy quota has room.
        lag_bytes: Bytes left to be copied.
    """

    unhealthy: HealthText = HEALTHY
    again_in_ms: int | None = None
    store_errors: int = 0
    is_held: bool = False
    is_throttled: bool = False
    lag_bytes: int = 0
