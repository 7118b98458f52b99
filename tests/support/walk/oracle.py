"""What a walk knows: what was acknowledged, what may be gone, and why each deletion was right.

Pure: it is told what clients did and what store and disk wrote down. Offsets `first` and `last` are
inclusive; `acknowledged`, `sent` and everything that ends in `_below` is exclusive.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum

from tests.support.brokers.traffic import VALUE_BYTES, Lane

RECORD_BYTES_MAX = VALUE_BYTES + 200
"""No record takes more of a segment, its batch's header included."""


class Reason(Enum):
    """Why bytes of records were deleted."""

    TOPIC = "topic deletion"
    RECORDS = "DeleteRecords"
    RETENTION = "retention.bytes"
    LOCAL = "local retention, copied"
    TWICE = "copied twice"
    UNFINISHED = "a copy that never finished"
    GIVEN_UP = "given up by a person"


@dataclass
class History:
    """One partition.

    Attributes:
        retention_bytes: of its topic; None: unlimited.
        acknowledged: below it every record was acknowledged.
        sent: below it records may exist.
        deleted_below: highest offset that a DeleteRecords request named.
        given_up_below: below it a person accepted losses.
        gaps: (first, end) of offsets whose records a person gave up, end exclusive.
        seen_start: log start at the last look.
    """

    lane: Lane
    is_tiered: bool = False
    retention_bytes: int | None = None
    acknowledged: int = 0
    sent: int = 0
    deleted_below: int = 0
    given_up_below: int = 0
    seen_start: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def retained_from(self) -> int:
        """Highest log start that leaves `retention_bytes`, if records are as large as can be."""
        if self.retention_bytes is None:
            return 0
        return max(0, self.sent - -(-self.retention_bytes // RECORD_BYTES_MAX))

    @property
    def is_dense(self) -> bool:
        """Whether a consumer may expect each offset while nobody sends DeleteRecords."""
        return self.retention_bytes is None and not self.given_up_below and not self.gaps

    @property
    def latest_start(self) -> int:
        """Highest log start that anybody asked for: what lies above it must be there."""
        return max(self.deleted_below, self.retained_from)

    def may_skip(self, first: int, end: int) -> bool:
        """Whether a person gave up every offset of [first, end)."""
        reached = max(first, self.given_up_below)
        for low, high in sorted(self.gaps):
            if low <= reached:
                reached = max(reached, high)
        return reached >= end

    def adopt(self, end: int, held: Iterable[tuple[int, int]]) -> None:
        """New records begin at `end`; what a tier holds, as (first, last) each, is not given up."""
        reached = self.latest_start
        for first, last in sorted(held):
            if first <= reached:
                reached = max(reached, last + 1)
        self.gaps.append((reached, end))
        self.deleted_below = self.latest_start  # what retention asked for stays deleted
        self.acknowledged = self.sent = end


@dataclass(frozen=True)
class Piece:
    """A run of records: a remote segment, or what was taken from a `.log` file.

    Attributes:
        name: of the remote segment, or of the file.
        ms: when it was complete, or was deleted.
    """

    lane: Lane
    name: str
    first: int
    last: int
    ms: int = 0
    is_remote: bool = False

    def __str__(self) -> str:
        what = "remote segment" if self.is_remote else "local file"
        return f"{self.lane[0]}-{self.lane[1]}: {what} {self.name} ({self.first} to {self.last})"


@dataclass
class World:
    """Everything that explains deletions.

    Attributes:
        finished: names of remote segments whose FINISHED was accepted.
        copied: remote segments whose objects were complete, by name.
        deleted: remote segments that were deleted, by name, with the time of the first deletion.
        left_behind: remote segments that the metadata may not know since they were put back.
    """

    histories: dict[Lane, History]
    deleted_topics: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    copied: dict[str, Piece] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    left_behind: set[str] = field(default_factory=set)

    def put_back(self, then: dict[Lane, History]) -> None:
        """All files are those of an earlier moment, the store is not.

        What came since is lost, and nothing in the files tells of it: no more is due than then.
        What was deleted in the store since stays so, of topics that are there again, too.
        """
        found = {lane: deepcopy(history) for lane, history in then.items()}
        for lane, history in found.items():
            now = self.histories.get(lane)
            if now is not None:
                history.deleted_below = min(now.latest_start, history.acknowledged)
        self.histories = {
            lane: history for lane, history in found.items() if lane[0] not in self.deleted_topics
        }

    def forget_metadata(self, in_store: set[str]) -> None:
        """The remote metadata are of an earlier moment: they count from now on.

        Args:
            in_store: ids of all segments of which something is in the store.
        """
        self.left_behind |= in_store
        self.finished.clear()

    def explain(self, deletion: Piece) -> Reason | None:
        """Why this was right; None: it was not."""
        if deletion.lane[0] in self.deleted_topics:
            return Reason.TOPIC
        history = self.histories.get(deletion.lane)
        if history is None:
            return None
        for below, reason in (
            (history.deleted_below, Reason.RECORDS),
            (history.retained_from, Reason.RETENTION),
            (history.given_up_below, Reason.GIVEN_UP),
        ):
            if deletion.last < below:
                return reason
        if deletion.is_remote and deletion.name not in self.finished:
            return Reason.UNFINISHED
        if history.is_tiered and self._is_remote_elsewhere(deletion, history.latest_start):
            return Reason.TWICE if deletion.is_remote else Reason.LOCAL
        return None

    def _is_remote_elsewhere(self, deletion: Piece, start: int) -> bool:
        """Whether what counts of it lies in other segments, finished and kept at that time."""
        kept = [
            piece
            for name, piece in self.copied.items()
            if piece.lane == deletion.lane
            and name in self.finished
            and name != deletion.name
            and self.deleted.get(name, deletion.ms + 1) > deletion.ms
        ]
        return covers(kept, max(deletion.first, start), deletion.last)


def covers(pieces: Iterable[Piece], first: int, last: int) -> bool:
    """Whether every offset of [first, last] lies in a piece."""
    for piece in sorted(pieces, key=lambda one: one.first):
        if piece.first > first:
            break
        first = max(first, piece.last + 1)
    return first > last
