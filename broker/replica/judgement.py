"""The tier's judgement of the partitions led here, and how many it has still to judge."""

from collections.abc import Sequence
from enum import Enum
from typing import Final, TypeAlias, assert_never

from rlm.link.messages import CopiedThrough, JudgementWithdrawn, Loss, LossFound, Report
from rlm.red_kinds import TierRed
from runtime.clock import Clock

LATE_AFTER_MS: Final = 300_000
"""A start with some thousand partitions is judged within two minutes."""

_MINUTE_MS: Final = 60_000


class Judgement(Enum):
    """A state without a loss.

    Not judged yet, judged sound and a loss that was found are three different values: offsets
    above the log end are out of range only where the log end was judged sound (docs/tiering.md
    §6).
    """

    OPEN = "not judged under this leader epoch"
    SOUND = "judged sound under this leader epoch"


Verdict: TypeAlias = Judgement | Loss


def reopened(before: Verdict) -> Verdict:
    """The verdict at a new leader epoch, or when its grounds are gone: a loss stays."""
    return Judgement.OPEN if before is Judgement.SOUND else before


def after(before: Verdict, report: Report) -> Verdict:
    """The verdict once the broker has taken a report."""
    match report:
        case CopiedThrough():
            return Judgement.SOUND
        case LossFound():
            return report.loss
        case JudgementWithdrawn():
            return reopened(before)
        case _:
            assert_never(report)


def has_barrier(report: Report) -> bool:
    """Whether the tier has read its barrier of this leader epoch back.

    It writes none under a leader epoch that is too low.
    """
    if isinstance(report, LossFound):
        return report.loss is not Loss.LEADER_EPOCH
    return isinstance(report, CopiedThrough)


class Standing(Enum):
    """Where a partition stands with the tier."""

    NOT_CONCERNED = "not tiered, or led by another broker"
    UNJUDGED = "not judged under this leader epoch"
    JUDGED = "judged sound, or a loss was found"


class JudgementTally:
    """Counts the partitions of one broker by their standing as they change, never by a walk."""

    def __init__(self, clock: Clock) -> None:
        """Count nothing yet; `clock` says how long judgements take."""
        self._clock = clock
        self._counts = dict.fromkeys(Standing, 0)
        self._unjudged_since_ms = 0

    @property
    def unjudged(self) -> int:
        """Partitions led here whose judgement is still to come."""
        return self._counts[Standing.UNJUDGED]

    @property
    def concerned(self) -> int:
        """Partitions led here that the tier judges."""
        return self.unjudged + self._counts[Standing.JUDGED]

    def move(self, before: Standing, after: Standing) -> None:
        """Take a partition from one standing to another; a new one is not concerned before."""
        if after is Standing.UNJUDGED and not self.unjudged:
            self._unjudged_since_ms = self._clock.monotonic_ms()
        self._counts[before] -= 1
        self._counts[after] += 1

    def progress(self) -> Sequence[str]:
        """How far judging has come, for people; nothing once all is judged."""
        if not self.unjudged:
            return ()
        return (f"judged {self.concerned - self.unjudged} of {self.concerned} partitions",)

    def late(self) -> Sequence[str]:
        """Why somebody should look, if judging goes on for minutes."""
        took_ms = self._clock.monotonic_ms() - self._unjudged_since_ms
        if not self.unjudged or took_ms < LATE_AFTER_MS:
            return ()
        judged, total = self.concerned - self.unjudged, self.concerned
        return (TierRed.JUDGING.text(judged=judged, total=total, minutes=took_ms // _MINUTE_MS),)
