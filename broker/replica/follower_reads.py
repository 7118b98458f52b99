"""Decides, from facts, a follower's answer to a consumer that fetches from it (KIP-392).

The leader is the authority on where a log starts and ends. A follower serves the records that it
has as committed, under the leader epoch that it follows. Where only the leader has the answer, the
consumer gets an error that sends it there. It must never get OFFSET_OUT_OF_RANGE by mistake: it
would reset its position and skip records.

DIFFERS: Kafka's follower answers OFFSET_OUT_OF_RANGE by its own log start and log end, and serves
before a new leader has answered it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from broker.replica.errors import NotLeaderOrFollower, ReplicaNotAvailable
from local_log.errors import OffsetOutOfRange
from runtime.clock import Clock


class Heard:
    """The time of a leader's last answer to a Fetch of this broker.

    All partitions of one fetch session share it: an answer that leaves a partition out confirms
    that partition unchanged.

    Attributes:
        at_ms: On the monotonic clock; None before the first answer.
    """

    __slots__ = ("_clock", "_wait_ms", "at_ms")

    def __init__(self, clock: Clock, wait_ms: int) -> None:
        """Begin without an answer; a Fetch waits for at most `wait_ms` at the leader."""
        self._clock, self._wait_ms = clock, wait_ms
        self.at_ms: int | None = None

    def answered(self, asked_ms: int) -> None:
        """Note an answer to the Fetch that was sent at `asked_ms`.

        The answer counts from the end of its wait at the latest: this process may have been
        suspended while the answer lay in the socket.
        """
        self.at_ms = min(self._clock.monotonic_ms(), asked_ms + self._wait_ms)

    @property
    def is_fresh(self) -> bool:
        """True if the last answer is at most one wait of a Fetch old."""
        return self.at_ms is not None and (self._clock.monotonic_ms() - self.at_ms <= self._wait_ms)


@dataclass(frozen=True, slots=True)
class LeaderWord:
    """The leader's statement on a partition, under this leader epoch; the two logs agree.

    Attributes:
        log_start_offset: Of the leader; -1 where the leader does not have it.
        heard: When the leader last confirmed it; None while the partition is not fetched: its log
            begins again from the remote tier, or the leader answers errors for it.
    """

    log_start_offset: int
    heard: Heard | None


class FollowerRead(Enum):
    """The outcome of a read at a follower."""

    NOT_FOLLOWER = "it does not follow a leader of this epoch yet, or any more"
    LOCAL = "read from its own log, up to what is visible; nothing above that"
    REMOTE = "read from the remote tier"
    OUT_OF_RANGE = "the leader has deleted it"
    NOT_AVAILABLE = "only the leader can tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerFacts:
    """The state of a follower when a consumer asks it for an offset.

    Attributes:
        word: Of the leader; None: nothing under this leader epoch.
        is_recovering: The leader was elected uncleanly, and has not recovered.
        log_start, local_start: Of the follower's log.
        log_end: Of the follower's log (exclusive).
        visible_end: First offset that this consumer may not see: the leader's high watermark or
            last stable offset, as far as this broker has it.
        knows_epoch: The epoch chain has the leader epoch of the offset.
    """

    word: LeaderWord | None
    is_recovering: bool = False
    log_start: int
    local_start: int
    log_end: int
    visible_end: int
    knows_epoch: bool


def decide(offset: int, facts: FollowerFacts) -> FollowerRead:
    """Return the outcome of a read at `offset`.

    REMOTE does not say that the remote tier has the segment: the remote read finds that out.
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
    """Raise the error of a read that a follower may not answer.

    `leader` is the part of the error's text that names the partition and its leader.

    Raises:
        NotLeaderOrFollower, OffsetOutOfRange, ReplicaNotAvailable: By `verdict`.
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
