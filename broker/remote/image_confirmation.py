"""Decides when an image is new enough for a question of the tier, with several controllers.

The tier deletes by the answer, so each change acknowledged before the question must be in the
image. The rule, pure: facts in, decision out.

1. DescribeQuorum is sent to the leader after the question came. L is the LogEndOffset (exclusive)
   of the leader's own entry in CurrentVoters, E its epoch.
2. This node has, in epoch E, a high watermark (exclusive) above L. The entry at L was appended
   after the question and acknowledged by a majority in E. So no later epoch had begun to commit
   before the question, and the answer is not from a deposed leader that missed changes.
3. The image has every record below L.

A change of epoch begins again.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


@dataclass(frozen=True, slots=True)
class LeaderEnd:
    """The leader's answer to a DescribeQuorum sent after the question.

    Attributes:
        epoch: Of the leader that answered.
        log_end_offset: End of its log (exclusive).
    """

    epoch: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Seen:
    """This node's present replica: its epoch, and two exclusive ends (-1: unknown)."""

    epoch: int
    high_watermark: int
    image_end_offset: int


class Verdict(Enum):
    """The next step for the question."""

    ANSWER = auto()
    WAIT = auto()
    ASK_AGAIN = auto()


def validate(leader: LeaderEnd, seen: Seen) -> Verdict:
    """Return whether the image may be the answer, by the module's rule.

    `leader` must come from a DescribeQuorum sent after the question; the caller ensures that.
    """
    if seen.epoch > leader.epoch:
        return Verdict.ASK_AGAIN
    if seen.epoch < leader.epoch or seen.high_watermark <= leader.log_end_offset:
        return Verdict.WAIT
    if seen.image_end_offset < leader.log_end_offset:
        return Verdict.WAIT
    return Verdict.ANSWER


def leader_end(partition: Any) -> LeaderEnd | None:
    """The leader's own end, from a partition of a DescribeQuorum response (any version).

    None where the answer has an error, or lacks the leader's own end: it proves nothing.
    """
    if partition.error_code:
        return None
    for voter in partition.current_voters:
        if voter.replica_id == partition.leader_id and voter.log_end_offset >= 0:
            return LeaderEnd(partition.leader_epoch, voter.log_end_offset)
    return None
