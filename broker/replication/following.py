"""One partition that follows a leader: what an answer is good for, and when it is asked again.

| the answer | what is done |
|---|---|
| batches, or news of watermark and log start | they are appended and taken over |
| a diverging epoch | the log is cut, and asks again with what is left, but see `is_cut_below` |
| OFFSET_OUT_OF_RANGE | the leader is asked where its log begins and ends, see `after_range` |
| OFFSET_MOVED_TO_TIERED_STORAGE | likewise for its local log, see `after_local_start` |
| FENCED_LEADER_EPOCH | nothing until the metadata say more: they are on their way |
| another error, or batches that are wrong | it waits alone, and asks again |

A partition that fails is asked again for ever, however its data look: the leader may be repaired or
replaced, and another answer proves nothing. After some time it counts as failed and is named.
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
"""DIFFERS: Kafka waits `replica.fetch.backoff.ms` at once. After an election a leader often knows
of it some milliseconds later than a follower, and acks=all would wait that second."""
FAULTS_MAX: Final = 3
"""So many wrong answers in a row, and the partition counts as failed."""
FAILING_MS: Final = 60_000
"""So long without an answer that is good for anything, and it does, too."""
FAILED_WAIT_MS: Final = 30_000
"""Between two attempts at a partition that the leader sends wrong batches of."""

# -- what is done with an answer ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Write the batches, if there are any, and take over what the leader says."""

    answer: PartitionAnswer


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log to where it may agree with the leader's.

    Attributes:
        log_start: the leader's. Where nothing is left, and the own log does not say that what lies
            below its own start is the leader's either, it begins there.
    """

    theirs: EpochEnd
    log_start: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Drop everything, and begin at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class FindRange:
    """Ask the leader where its log begins and ends."""


@dataclass(frozen=True, slots=True)
class FindLocalStart:
    """Ask the leader where its local log begins: the offset is only in its remote tier."""


@dataclass(frozen=True, slots=True)
class Build:
    """Begin at a remote segment's end, with the state that the segment carries.

    See `broker.replication.tier_bootstrap`.
    """

    theirs: "LocalStart"


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again later.

    Attributes:
        is_fault: the leader's answer is wrong, not late.
        is_for_tier: the own remote tier has not what is needed, as it may be for all partitions at
            once: `TierBootstraps.problems` names it, for all of them together.
    """

    reason: str
    is_fault: bool = False
    is_for_tier: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask no more until the partition gets a role again.

    Attributes:
        is_failure: a person should know.
    """

    reason: str
    is_failure: bool = False


Decision = Append | Truncate | Begin | FindRange | FindLocalStart | Wait | Stop


def decided(answer: PartitionAnswer) -> Decision:
    """What is to be done with an answer under the leadership and at the offset it was asked for."""
    match answer.error:
        case ErrorCode.NONE if answer.diverging is not None:
            # Watermark and log start are told again once the logs agree.
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
    """Where a leader's log begins, and ends, with the epoch of its end."""

    start: int
    end: int
    end_epoch: int


def after_range(theirs: LeaderRange, *, log_start: int, log_end: int) -> Begin | Truncate:
    """What is to be done by a follower whose offset the leader does not have.

    Below the leader's log nothing of the own one counts. Above it, or at an epoch that the leader
    does not know, the logs have diverged: only what the leader lacks goes, and never more because
    of its range alone. An empty log has nothing to lose, and begins where the leader's does.
    DIFFERS: Kafka's begins where the leader ends, lacks all that the leader has, and is in sync.

    Args:
        theirs: the leader's.
        log_start: of the own log.
        log_end: of the own log (exclusive).
    """
    if log_end < theirs.start or log_start == log_end:
        return Begin(theirs.start)
    return Truncate(EpochEnd(theirs.end_epoch, theirs.end), theirs.start)


class LocalStart(NamedTuple):
    """Where a follower may begin whose offset is only in the leader's remote tier.

    Attributes:
        offset: the leader's local start, or the first offset that is not copied.
        epoch_below: leader epoch of the record before it.
        log_start: the leader's.
        above: the leader's epochs that begin above that record, ascending.
    """

    offset: int
    epoch_below: int
    log_start: int
    above: tuple[EpochEntry, ...] = ()


def after_local_start(theirs: LocalStart, *, log_end: int) -> Begin | Build | Wait:
    """What is to be done by a follower whose next offset its leader has only in the remote tier.

    Args:
        theirs: what the leader says now.
        log_end: of the own log (exclusive); -1: nothing of it counts, see `is_cut_below`.
    """
    if theirs.offset <= log_end:
        return Wait(f"the leader's local log begins at {theirs.offset} by now")
    if theirs.offset <= theirs.log_start:
        return Begin(theirs.log_start)  # nothing below counts any more: there is no state to build
    return Build(theirs)


def is_cut_below(cut: int, *, log_start: int, local_start: int) -> bool:
    """Whether a log that is cut there is empty, and continues where no producers are known.

    Such a log is not cut: it begins again as one that has nothing. At the local start producers are
    known, by the first segment's snapshot; without remote records they come from records alone.
    Only unclean elections lead to this, so the replica is in no ISR: what it has dropped was
    committed in a lineage that was given up.

    Args:
        cut: where it would end (exclusive).
        log_start: of the log.
        local_start: of the log.
    """
    return log_start < local_start and cut < local_start


def is_current(asked: Asked, *, leader_epoch: int, log_end: int) -> bool:
    """Whether an answer is about the leadership and the log as they are now."""
    return asked.leader_epoch == leader_epoch and asked.offset == log_end


def check_order(batches: memoryview) -> None:
    """Refuse batches that do not ascend, before the first of them is written.

    Written up to the one out of order, the log would have a hole that nobody fills. What else may
    be wrong with a batch the log finds when it comes to it.

    Raises:
        UnexpectedAppendOffset: a batch begins below the end of the one before it.
    """
    position, end, last = 0, -1, len(batches) - HEADER_SIZE
    while position <= last:
        base, size, last_delta = _unpack_place(batches, position)
        if base < end:
            raise UnexpectedAppendOffset(first_offset=base, log_end=end)
        end = base + last_delta + 1
        position += LOG_OVERHEAD + max(size, 0)


def base_below(batches: memoryview, asked: int) -> int | None:
    """Where the first batch begins that reaches over the asked offset; None: it begins there.

    The leader's log start may lie within a batch (DeleteRecords), which is sent whole: a log that
    is to begin at that start begins with it.
    """
    if len(batches) < HEADER_SIZE:
        return None
    base, _, last_delta = _unpack_place(batches)
    return base if 0 <= base < asked <= base + last_delta else None


# -- when it is asked ---------------------------------------------------------------------------


class Standing(Enum):
    """Whether a partition is asked for."""

    ASKED = auto()
    WAITING = auto()
    BUILDING = auto()  # state from the remote tier
    STOPPED = auto()


@dataclass(slots=True)
class Following:
    """Where a partition stands under one leadership.

    Attributes:
        due_ms: of a partition that waits: it is asked for again then.
        reason: why it is not asked for, or was not last time.
        lag: records (offsets) that are committed and not here yet.
        is_failed: a person should know.
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
        """An answer was good; returns whether it had counted as failed."""
        was_failed, self.is_failed = self.is_failed, False
        self._failures = self._faults = 0
        self.standing, self.reason = Standing.ASKED, ""
        return was_failed

    def wait(self, wait: Wait, *, now_ms: int, backoff_ms: int) -> bool:
        """Ask again later.

        Args:
            wait: why.
            now_ms: monotonic.
            backoff_ms: the longest pause after an error (`replica.fetch.backoff.ms`).

        Returns:
            Whether it counts as failed from now on, or is wrong for the first time: worth a line.
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
        """Ask again at that time; nothing is wrong with it."""
        self.standing, self.due_ms = Standing.WAITING, until_ms

    def is_due(self, due_ms: int) -> bool:
        """The time is `due_ms`: ask again, if it has waited until then."""
        is_due = self.standing is Standing.WAITING and self.due_ms == due_ms
        if is_due:
            self.standing = Standing.ASKED
        return is_due

    def build(self) -> None:
        """Ask nothing until `built`: the log is about to begin elsewhere."""
        self.standing = Standing.BUILDING

    def built(self) -> None:
        """Ask again, from where the log begins now, or as before."""
        self.standing, self.reason = Standing.ASKED, ""

    def stop(self, stop: Stop) -> None:
        """Ask no more."""
        self.standing, self.reason, self.is_failed = Standing.STOPPED, stop.reason, stop.is_failure
