"""How many partitions the tier has still to judge: counted as they change, never by a walk."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from rlm.red_kinds import TierRed
from runtime.clock import Clock

LATE_AFTER_MS: Final = 300_000
"""A start with some thousand partitions is judged within two minutes."""

_MINUTE_MS: Final = 60_000


class Standing(Enum):
    """Where a partition stands with the tier."""

    NOT_CONCERNED = "not tiered, or led by another broker"
    UNJUDGED = "not judged under this leader epoch"
    JUDGED = "judged sound, or a loss was found"


class JudgementTally:
    """Counts the partitions of one broker by their standing."""

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
