"""What a follower may answer to a consumer that fetches from it (KIP-392), decided from facts.

The leader is the authority on where a log starts and ends. A follower gives what it knows to be
committed, under the leader epoch that it follows. Where only the leader can tell, a consumer gets
an error that sends it there, and never OFFSET_OUT_OF_RANGE by mistake: it would reset and skip.

DIFFERS: Kafka's follower answers OFFSET_OUT_OF_RANGE by its own log start and log end, and serves
before it has heard of a new leader.
"""

from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from broker.replica.errors import NotLeaderOrFollower, ReplicaNotAvailable
from local_log.errors import OffsetOutOfRange
from runtime.clock import Clock


class Heard:
    """When a leader has last answered a Fetch of this broker.

    All partitions of one fetch session share it: an answer that leaves a partition out says that
    nothing of it has changed.

    Attributes:
        at_ms: on the monotonic clock.
    """

    __slots__ = ("_clock", "_wait_ms", "at_ms")

    def __init__(self, clock: Clock, wait_ms: int) -> None:
        """Nothing was heard; a Fetch waits for `wait_ms` at the most."""
        self._clock, self._wait_ms = clock, wait_ms
        self.at_ms: int | None = None

    def answered(self, asked_ms: int) -> None:
        """An answer is here to what was asked then.

        It may have been here for long while this process slept: a leader answers within the wait.
        """
        self.at_ms = min(self._clock.monotonic_ms(), asked_ms + self._wait_ms)

    @property
    def is_fresh(self) -> bool:
        """Whether the last answer is at most one wait of a Fetch old."""
        return self.at_ms is not None and (self._clock.monotonic_ms() - self.at_ms <= self._wait_ms)


@dataclass(frozen=True, slots=True)
class LeaderWord:
    """What the leader of this leader epoch has said of a partition, whose log agrees with its own.

    Attributes:
        log_start_offset: of the leader; -1 where it does not know it.
        heard: when it last confirmed that; None once the partition is not asked for any more: its
            log begins again by the remote tier, or the leader answers errors for it.
    """

    log_start_offset: int
    heard: Heard | None


class FollowerRead(Enum):
    """What becomes of a read at a follower."""

    NOT_FOLLOWER = "it does not follow a leader of this epoch yet, or any more"
    LOCAL = "read from its own log, up to what is visible; nothing above that"
    REMOTE = "read from the remote tier"
    OUT_OF_RANGE = "the leader has deleted it"
    NOT_AVAILABLE = "only the leader can tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerFacts:
    """What a follower knows when it is asked for an offset.

    Attributes:
        word: of the leader; None: nothing under this leader epoch.
        is_recovering: the leader was elected uncleanly, and has not settled that.
        log_start, local_start: of its own log.
        log_end: of its own log (exclusive).
        visible_end: first offset that this consumer may not see: of what the leader has told, the
            high watermark or the last stable offset.
        knows_epoch: the epoch chain says under which leader epoch the offset was written.
    """

    word: LeaderWord | None
    is_recovering: bool = False
    log_start: int
    local_start: int
    log_end: int
    visible_end: int
    knows_epoch: bool


def decide(offset: int, facts: FollowerFacts) -> FollowerRead:
    """Say what becomes of a read at `offset`.

    Whether the remote tier has read what is known of its segments is asked of it with the read.
    """
    word = facts.word
    if word is None:
        return FollowerRead.NOT_FOLLOWER
    if offset < max(facts.log_start, word.log_start_offset):
        is_fresh = word.heard is not None and word.heard.is_fresh
        if is_fresh and offset < word.log_start_offset:
            return FollowerRead.OUT_OF_RANGE
        return FollowerRead.NOT_AVAILABLE
    if offset > facts.log_end:
        return FollowerRead.NOT_AVAILABLE
    if offset >= facts.local_start:
        return FollowerRead.LOCAL
    is_settled = word.heard is not None and not facts.is_recovering
    if is_settled and facts.knows_epoch and offset < facts.visible_end:
        return FollowerRead.REMOTE
    return FollowerRead.NOT_AVAILABLE


def refuse(verdict: FollowerRead, offset: int, facts: FollowerFacts, leader: str) -> None:
    """Refuse a read that a follower may not answer; `leader` says who leads which partition.

    Raises:
        NotLeaderOrFollower, OffsetOutOfRange, ReplicaNotAvailable: see `FollowerRead`.
    """
    match verdict:
        case FollowerRead.LOCAL | FollowerRead.REMOTE:
            return
        case FollowerRead.NOT_FOLLOWER:
            raise NotLeaderOrFollower(leader)
        case FollowerRead.OUT_OF_RANGE:
            raise OffsetOutOfRange(asked=offset, start=facts.log_start, end=facts.log_end)
        case FollowerRead.NOT_AVAILABLE:
            raise ReplicaNotAvailable(
                f"a follower cannot tell what is at offset {offset}: {leader}"
            )
        case _:
            assert_never(verdict)
