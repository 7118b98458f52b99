"""One partition that follows a leader: how to act on an answer, and when to fetch again.

Actions by answer:

- Batches, or a new watermark or log start: They are appended and taken over.
- A diverging epoch: The log is truncated, then fetched again; but see `is_cut_below`.
- OFFSET_OUT_OF_RANGE: The leader is asked for the start and end of its log, see `after_range`.
- OFFSET_MOVED_TO_TIERED_STORAGE: It is asked for its local start, see `after_local_start`.
- FENCED_LEADER_EPOCH: Nothing, until newer metadata arrive.
- Another error, or wrong batches: This partition alone waits, and is fetched again.

A partition that fails is fetched again without end: the leader may be repaired or replaced, and a
repeated answer proves nothing. After some time it counts as failed and is named.
DIFFERS: Kafka's follower gives a partition up whose batches do not fit, until its next leader.

Pure.
"""

from dataclasses import dataclass
from enum import Enum, auto
from struct import Struct
from typing import Final, NamedTuple

from broker.replication.fetch_session import Asked
from broker.replication.fetch_wire import PartitionAnswer
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD
from kafka_protocol.types import EpochEntry
from local_log.errors import UnexpectedAppendOffset
from local_log.leader_epoch_cache import EpochEnd

_unpack_place = Struct(">qi11xi").unpack_from
"""Of a batch: base offset, length, last offset delta."""
FIRST_WAIT_MS: Final = 20
"""DIFFERS: Kafka waits `replica.fetch.backoff.ms` at once. A new leader often gets the metadata
some milliseconds later than a follower, and acks=all would wait that second."""
FAULTS_MAX: Final = 3
"""After so many wrong answers in a row the partition counts as failed."""
FAILING_MS: Final = 60_000
"""After so long without a usable answer it does, too."""
FAILED_WAIT_MS: Final = 30_000
"""Pause of a partition for which the leader sends wrong batches."""

# -- actions on an answer -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Append the batches, if there are any, and take over the leader's watermark and log start."""

    answer: PartitionAnswer


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to where it may agree with the leader's.

    Attributes:
        log_start: The leader's. The log begins there if the truncation leaves nothing, unless its
            epoch chain shows that the two logs agree below its own start.
    """

    theirs: EpochEnd
    log_start: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Drop everything, and begin at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class FindRange:
    """Ask the leader for the start and end of its log."""


@dataclass(frozen=True, slots=True)
class FindLocalStart:
    """Ask the leader for its local start: the offset is only in its remote tier."""


@dataclass(frozen=True, slots=True)
class Build:
    """Begin at a remote segment's end, with the state that the segment carries.

    See `broker.replication.tier_bootstrap`.
    """

    theirs: "LocalStart"


@dataclass(frozen=True, slots=True)
class Wait:
    """Fetch again later.

    Attributes:
        is_fault: The leader's answer is wrong, not late.
        is_for_tier: This broker's remote tier lacks the needed state, perhaps for all partitions:
            `TierBootstraps.problems` names them in one line.
    """

    reason: str
    is_fault: bool = False
    is_for_tier: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Do not fetch until the partition gets a role again.

    Attributes:
        is_failure: An operator should look.
    """

    reason: str
    is_failure: bool = False


Decision = Append | Truncate | Begin | FindRange | FindLocalStart | Wait | Stop


def decided(answer: PartitionAnswer) -> Decision:
    """Return the action on an answer, for the leadership and offset of its request."""
    match answer.error:
        case ErrorCode.NONE if answer.diverging is not None:
            # The leader repeats watermark and log start once the logs agree.
            return Truncate(answer.diverging, max(answer.log_start_offset, 0))
        case ErrorCode.NONE:
            return Append(answer)
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return FindRange()
        case ErrorCode.FENCED_LEADER_EPOCH:
            return Stop("the leader has a later leader epoch than the metadata here")
        case ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return FindLocalStart()
    return Wait(f"the leader answers {ErrorCode.of(answer.error).name}")


class LeaderRange(NamedTuple):
    """Start and end (exclusive) of a leader's log, and the epoch of its end."""

    start: int
    end: int
    end_epoch: int


def after_range(theirs: LeaderRange, *, log_start: int, log_end: int) -> Begin | Truncate:
    """Return the action of a follower whose offset the leader does not have.

    Below the leader's log start nothing of this log counts. Above its end, or at an epoch that it
    does not have, the logs have diverged. Only records that the leader lacks are removed, and never
    more because of its range alone. An empty log has nothing to lose, and begins at the leader's
    start. DIFFERS: Kafka's begins at the leader's end, lacks all records below, and is in sync.

    Args:
        theirs: The leader's.
        log_start: Of this log.
        log_end: Of this log (exclusive).
    """
    if log_end < theirs.start or log_start == log_end:
        return Begin(theirs.start)
    return Truncate(EpochEnd(theirs.end_epoch, theirs.end), theirs.start)


class LocalStart(NamedTuple):
    """The place where a follower may begin whose offset is only in the leader's remote tier.

    Attributes:
        offset: The leader's local start, or the first offset that is not copied.
        epoch_below: Leader epoch of the record before it.
        log_start: The leader's.
        above: The leader's epochs that begin above that record, ascending.
    """

    offset: int
    epoch_below: int
    log_start: int
    above: tuple[EpochEntry, ...] = ()


def after_local_start(theirs: LocalStart, *, log_end: int) -> Begin | Build | Wait:
    """Return the action of a follower whose next offset its leader has only in the remote tier.

    Args:
        theirs: The leader's present answer.
        log_end: Of this log (exclusive); -1: nothing of it counts, see `is_cut_below`.
    """
    if theirs.offset <= log_end:
        return Wait(f"the leader's local log begins at {theirs.offset} by now")
    if theirs.offset <= theirs.log_start:
        return Begin(theirs.log_start)  # nothing below counts: there is no state to build
    return Build(theirs)


def is_cut_below(cut: int, *, log_start: int, local_start: int) -> bool:
    """True if a truncation to `cut` leaves no records, and no state of producers.

    Such a log is not truncated: it begins again as an empty one. At the local start the snapshot of
    the first segment has the producers; without remote records they come from the records alone.
    Only unclean elections lead to this, so the replica is in no ISR: the removed records were
    committed in a lineage that was given up.

    Args:
        cut: End of the log after the truncation (exclusive).
        log_start: Of the log.
        local_start: Of the log.
    """
    return log_start < local_start and cut < local_start


def is_current(asked: Asked, *, leader_epoch: int, log_end: int) -> bool:
    """True if the request of an answer had the present leadership and log end."""
    return asked.leader_epoch == leader_epoch and asked.offset == log_end


def check_order(batches: memoryview) -> None:
    """Refuse batches that do not ascend, before the first of them is written.

    Written up to the one out of order, the log would keep a hole. The log itself finds all other
    defects of a batch when it appends it.

    Raises:
        UnexpectedAppendOffset: A batch begins below the end of the one before it.
    """
    position, end, last = 0, -1, len(batches) - HEADER_SIZE
    while position <= last:
        base, size, last_delta = _unpack_place(batches, position)
        if base < end:
            raise UnexpectedAppendOffset(first_offset=base, log_end=end)
        end = base + last_delta + 1
        position += LOG_OVERHEAD + max(size, 0)


def base_below(batches: memoryview, asked: int) -> int | None:
    """Base offset of the first batch if it begins below the asked offset; None if it does not.

    The leader's log start may lie within a batch (DeleteRecords), which is sent whole. A log that
    is to begin at that start begins with the batch.
    """
    if len(batches) < HEADER_SIZE:
        return None
    base, _, last_delta = _unpack_place(batches)
    return base if 0 <= base < asked <= base + last_delta else None


# -- when to fetch ------------------------------------------------------------------------------


class Standing(Enum):
    """State of a followed partition: fetched or not."""

    ASKED = auto()
    WAITING = auto()
    BUILDING = auto()  # state from the remote tier
    STOPPED = auto()


@dataclass(slots=True)
class Following:
    """The state of a partition under one leadership.

    Attributes:
        due_ms: Of a partition that waits: the time of its next Fetch (monotonic).
        reason: Why it is not fetched, or why the last Fetch failed.
        lag: Committed offsets that are not here yet.
        is_failed: An operator should look.
    """

    leader_epoch: int
    standing: Standing = Standing.ASKED
    due_ms: int = 0
    reason: str = ""
    lag: int = 0
    is_failed: bool = False
    _failures: int = 0
    _faults: int = 0
    _failing_since_ms: int = 0

    def went_well(self) -> bool:
        """Note a good answer; returns whether the partition had counted as failed."""
        was_failed, self.is_failed = self.is_failed, False
        self._failures = self._faults = 0
        self.standing, self.reason = Standing.ASKED, ""
        return was_failed

    def wait(self, wait: Wait, *, now_ms: int, backoff_ms: int) -> bool:
        """Fetch again later.

        Args:
            wait: The reason.
            now_ms: Monotonic.
            backoff_ms: The longest pause after an error (`replica.fetch.backoff.ms`).

        Returns:
            True if the caller should log it: the partition counts as failed from now on, or this
            is the first wrong answer.
        """
        if not self._failures:
            self._failing_since_ms = now_ms
        self._failures += 1
        if wait.is_for_tier:
            pause_ms = min(FIRST_WAIT_MS << min(self._failures - 1, 20), FAILED_WAIT_MS)
            self.standing, self.reason = Standing.WAITING, wait.reason
            self.due_ms, self._failing_since_ms = now_ms + pause_ms, now_ms
            return False
        self._faults = self._faults + 1 if wait.is_fault else 0
        was_failed = self.is_failed
        self.is_failed |= (
            self._faults >= FAULTS_MAX or now_ms - self._failing_since_ms >= FAILING_MS
        )
        pause_ms = min(FIRST_WAIT_MS << min(self._failures - 1, 20), backoff_ms)
        if wait.is_fault:
            pause_ms = FAILED_WAIT_MS if self.is_failed else backoff_ms
        self.standing, self.reason, self.due_ms = Standing.WAITING, wait.reason, now_ms + pause_ms
        return self.is_failed > was_failed or self._faults == 1

    def hold(self, until_ms: int) -> None:
        """Fetch again at that time; this is no failure."""
        self.standing, self.due_ms = Standing.WAITING, until_ms

    def is_due(self, due_ms: int) -> bool:
        """Fetch again if the partition has waited until `due_ms`; returns whether it has."""
        is_due = self.standing is Standing.WAITING and self.due_ms == due_ms
        if is_due:
            self.standing = Standing.ASKED
        return is_due

    def build(self) -> None:
        """Do not fetch until `built`: the log is about to begin elsewhere."""
        self.standing = Standing.BUILDING

    def built(self) -> None:
        """Fetch again, from the log's new begin or as before."""
        self.standing, self.reason = Standing.ASKED, ""

    def stop(self, stop: Stop) -> None:
        """Do not fetch under this leadership."""
        self.standing, self.reason, self.is_failed = Standing.STOPPED, stop.reason, stop.is_failure
