"""What a task asks of the world: a generator that yields one of these and is sent the result.

A pool thread performs them for real (`rlm.maintenance.performer`); the simulator performs them in
any order and may stop after any of them. Each names its result.
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
    """Look at the local log and the remote segments -> LogFacts.

    Attributes:
        closed_segments: also at the local closed segments from the end of the copied run on.
    """

    closed_segments: bool = True


@dataclass(frozen=True, slots=True)
class WallMs:
    """-> wall clock, ms."""


@dataclass(frozen=True, slots=True)
class OpenLocal:
    """Open a closed local segment -> LocalSegment."""

    base_offset: int


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """An opened local segment: what the broker said of it, and its files at position 0."""

    answer: OpenedSegment
    data: LogSegmentData


@dataclass(frozen=True, slots=True)
class BeginCopy:
    """Draw a new segment id and start the copy maximum's clock -> 16 bytes."""


@dataclass(frozen=True, slots=True)
class AddStarted:
    """Write COPY_SEGMENT_STARTED; done when read back and accepted -> None."""

    metadata: RemoteLogSegmentMetadata
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class PutObjects:
    """Copy the objects, unless the copy maximum has passed -> custom metadata or None."""

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read the copy back -> str: what is not found in the store, or not yet; "" if all is there.

    Attributes:
        metadata: with its custom metadata.
        data: what was copied.
        again_in_ms: what is not found is an error where the copy maximum passes before that.
    """

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData
    again_in_ms: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, or until the ownership is over -> None."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class UpdateState:
    """Write a later state of a known segment; done when read back and accepted -> None."""

    update: SegmentUpdate
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Delete all objects of the segment -> None."""

    metadata: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class StartedSeenMs:
    """When STARTED of the segment was first seen here -> wall clock ms."""

    metadata: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class WasDeletedOnce:
    """Whether this process has deleted the segment's objects already -> bool."""

    segment_id: bytes


@dataclass(frozen=True, slots=True)
class MoveStart:
    """Have the broker move the log start; done when checkpointed and fsynced -> bool: taken."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Recall:
    """What accepted records say beyond the segments' states -> PartitionHistory."""


@dataclass(frozen=True, slots=True)
class ReadEpochs:
    """Read a segment's LEADER_EPOCH index -> entries, None where it is missing or damaged."""

    metadata: RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Restore:
    """Have the broker take a chain; done when it is fsynced -> bool: taken."""

    chain: Sequence[EpochEntry]


@dataclass(frozen=True, slots=True)
class Carry:
    """Let each record from here on carry the log start, which is checkpointed -> None."""

    log_start: int


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the broker what was found out about the partition -> bool: it goes by it now."""

    report: messages.Report


@dataclass(frozen=True, slots=True)
class NeedEpoch:
    """Have the controller give a leader epoch above `used` -> str: why it is in vain, or ""."""

    used: int


@dataclass(frozen=True, slots=True)
class Measure:
    """Publish what a pass has seen -> None."""

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
# What is sent in depends on the effect; each `yield` says which type it expects.
Task: TypeAlias = Generator[Effect, Any, R]


@dataclass(frozen=True, slots=True)
class PassResult:
    """How a pass ended when nothing was raised.

    Attributes:
        unhealthy: what a person should look at.
        again_in_ms: come back earlier than at the next interval; 0: the pass is not through.
        store_errors: calls of the plugin that failed while the pass continued.
        is_held: work is left that waits until the store works again.
        is_throttled: work is left that waits until the copy quota has room.
        lag_bytes: what is left to be copied.
    """

    unhealthy: HealthText = HEALTHY
    again_in_ms: int | None = None
    store_errors: int = 0
    is_held: bool = False
    is_throttled: bool = False
    lag_bytes: int = 0
