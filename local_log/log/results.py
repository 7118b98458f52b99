"""Results of a log, and its calls to the manager."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from local_log.log.retention_policy import Reason
from local_log.segment.aborted_index import AbortedCache
from runtime.disk import FileRegion


class AppendInfo(NamedTuple):
    """Result of an append.

    Attributes:
        first_offset, last_offset: Inclusive; for a duplicate those of the earlier append.
        log_append_time_ms: Assigned timestamp, -1 if the producer's timestamps stay.
        is_duplicate: Nothing was written.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


class Ended(Enum):
    """Reason for the end of an append of a leader's batches."""

    ALL = auto()
    """All bytes are written."""
    CUT = auto()
    """The last batch is incomplete, as the answer to a Fetch may end."""
    NEWER_EPOCH = auto()
    """A batch has a later epoch than the leader's: another leader has written it meanwhile."""


class Appended(NamedTuple):
    """The appended part of some batches.

    Attributes:
        first_offset: Of the first batch; -1 if nothing was written.
        last_offset: Of the last record (inclusive); -1 if nothing was written.
        size_bytes: Of these batches; 0 with `Ended.CUT`: no batch was complete, and a retry is
            needed.
    """

    first_offset: int
    last_offset: int
    size_bytes: int
    ended: Ended


class LogRead(NamedTuple):
    """Regions to send: whole batches, except that the last may be cut at the byte limit.

    Attributes:
        first_batch_offset: Base offset of the first batch, -1 if there are no bytes.
        upper_bound_offset: No record in the regions is at or above it.
    """

    regions: list[FileRegion]
    size_bytes: int
    first_batch_offset: int
    upper_bound_offset: int


@dataclass(frozen=True, slots=True)
class Expiry:
    """Segments of a log to delete.

    Attributes:
        dropped: (base offset, reason) of each, oldest first.
        log_start_offset: New log start; durable before the segments are deleted.
        decided_ms: Time of the decision, by the wall clock.
    """

    dropped: tuple[tuple[int, Reason], ...]
    log_start_offset: int
    decided_ms: int


@dataclass(slots=True)
class LogHooks:
    """Calls of a log to its manager.

    Attributes:
        delete_later: Unlink these renamed files after this many milliseconds; None: at once.
        rolled: A segment was closed and needs a flush.
        failed: The disk failed; the directory must go offline.
        before_truncation: Lower recovery point, high watermark and all other marks of this log to
            at most this end offset (exclusive); returns when that is durable. Called before any
            file changes.
        aborted: Cache of transaction indexes, shared by all logs of a manager.
        log_start_moved: Make the log start durable after a truncation moved it.
    """

    delete_later: Callable[[list[Path], int], None] | None = None
    rolled: Callable[[], None] = field(default=lambda: None)
    failed: Callable[[OSError], None] = field(default=lambda _error: None)
    before_truncation: Callable[[int], None] = field(default=lambda _end_offset: None)
    log_start_moved: Callable[[], object] = field(default=lambda: None)
    aborted: AbortedCache = field(default_factory=AbortedCache)
