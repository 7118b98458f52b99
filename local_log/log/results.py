"""What a log answers, and what it asks of its manager."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from local_log.log.retention_policy import Reason
from local_log.segment.aborted_index import AbortedCache
from runtime.disk import FileRegion


class AppendInfo(NamedTuple):
    """What became of an append.

    Attributes:
        first_offset, last_offset: inclusive; of the earlier append if it was a repeat.
        log_append_time_ms: the stamp given, -1 if the producer's timestamps stay.
        is_duplicate: nothing was written.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


class Ended(Enum):
    """Why batches of a leader were written no further."""

    ALL = auto()
    """All bytes are written."""
    CUT = auto()
    """The last batch is not there as a whole, as the answer to a Fetch may end."""
    NEWER_EPOCH = auto()
    """A batch is of a later epoch than the leader's: another leader wrote it meanwhile."""


class Appended(NamedTuple):
    """What was written of some batches.

    Attributes:
        first_offset: of the first batch; -1 if nothing was written.
        last_offset: of the last record (inclusive); -1 if nothing was written.
        size_bytes: of these batches; 0 with `Ended.CUT` brings nobody forward: no batch was whole.
    """

    first_offset: int
    last_offset: int
    size_bytes: int
    ended: Ended


class LogRead(NamedTuple):
    """Bytes to send: whole batches, but the last may be cut at the byte limit (clients skip it).

    Attributes:
        first_batch_offset: base offset of the first batch, -1 if there are no bytes.
        upper_bound_offset: no record in the regions is at or above it.
    """

    regions: list[FileRegion]
    size_bytes: int
    first_batch_offset: int
    upper_bound_offset: int


@dataclass(frozen=True, slots=True)
class Expiry:
    """Which segments of a log are to go.

    Attributes:
        dropped: (base offset, reason) of each, oldest first.
        log_start_offset: where the log begins now; durable before the segments go.
        decided_ms: when this was decided, by the wall clock.
    """

    dropped: tuple[tuple[int, Reason], ...]
    log_start_offset: int
    decided_ms: int


@dataclass(slots=True)
class LogHooks:
    """What a log asks of its manager.

    Attributes:
        delete_later: unlink these renamed files after so many milliseconds; None: at once.
        rolled: a segment was closed and wants flushing.
        failed: the disk failed; the directory is to go offline.
        before_truncation: lower recovery point, high watermark and whatever else says how far this
            log reaches to at most this end offset (exclusive); returns when that is durable. Called
            before any file changes.
        aborted: what is known of transaction indexes; one for all logs of a manager.
        log_start_moved: make the log start durable: a truncation has moved it.
    """

    delete_later: Callable[[list[Path], int], None] | None = None
    rolled: Callable[[], None] = field(default=lambda: None)
    failed: Callable[[OSError], None] = field(default=lambda _error: None)
    before_truncation: Callable[[int], None] = field(default=lambda _end_offset: None)
    log_start_moved: Callable[[], object] = field(default=lambda: None)
    aborted: AbortedCache = field(default_factory=AbortedCache)
