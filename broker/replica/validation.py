"""The tier's validation of the partitions led here, and how many it has still to validate."""

from collections.abc import Sequence
from enum import Enum
from typing import Final, TypeAlias, assert_never

from rlm.link.messages import CopiedThrough, Loss, LossFound, Report, ValidationWithdrawn
from runtime.clock import Clock
from runtime.health_reasons import HealthReason

LATE_AFTER_MS: Final = 300_000
"""A start with some thousand partitions is validated within two minutes."""

_MINUTE_MS: Final = 60_000


class Validation(Enum):
    """A state without a loss.

    "Not validated", "validated" and "a loss was found" are three different values. Offsets above
    the log end are out of range only if the log end was validated (docs/tiering.md §6).
    """

    OPEN = "not validated under this leader epoch"
    SOUND = "validated sound under this leader epoch"


Verdict: TypeAlias = Validation | Loss


def reopened(before: Verdict) -> Verdict:
    """The verdict at a new leader epoch, or when its basis is gone: a loss stays."""
    return Validation.OPEN if before is Validation.SOUND else before


def after(before: Verdict, report: Report) -> Verdict:
    """The verdict once the broker has taken a report."""
    match report:
        case CopiedThrough():
            return Validation.SOUND
        case LossFound():
            return report.loss
        case ValidationWithdrawn():
            return reopened(before)
        case _:
            assert_never(report)


def has_barrier(report: Report) -> bool:
    """True if the tier has read its barrier of this leader epoch back.

    It writes none under a leader epoch that is too low.
    """
    if isinstance(report, LossFound):
        return report.loss is not Loss.LEADER_EPOCH
    return isinstance(report, CopiedThrough)


class Standing(Enum):
    """The state of a partition's validation by the tier."""

    NOT_CONCERNED = "not tiered, or led by another broker"
    UNVALIDATED = "not validated under this leader epoch"
    VALIDATED = "validated sound, or a loss was found"


class ValidationTally:
    """Counts the partitions of one broker by their standing as they change, never by a walk."""

    def __init__(self, clock: Clock) -> None:
        """Count nothing yet; `clock` measures how long validations take."""
        self._clock = clock
        self._counts = dict.fromkeys(Standing, 0)
        self._unvalidated_since_ms = 0

    @property
    def unvalidated(self) -> int:
        """Partitions led here that the tier has still to validate."""
        return self._counts[Standing.UNVALIDATED]

    @property
    def concerned(self) -> int:
        """Partitions led here that the tier validates."""
        return self.unvalidated + self._counts[Standing.VALIDATED]

    def move(self, before: Standing, after: Standing) -> None:
        """Move a partition from one standing to another; a new one begins at NOT_CONCERNED."""
        if after is Standing.UNVALIDATED and not self.unvalidated:
            self._unvalidated_since_ms = self._clock.monotonic_ms()
        self._counts[before] -= 1
        self._counts[after] += 1

    def progress(self) -> Sequence[str]:
        """The progress of the validation, for people; empty once all is validated."""
        if not self.unvalidated:
            return ()
        return (f"validated {self.concerned - self.unvalidated} of {self.concerned} partitions",)

    def late(self) -> Sequence[str]:
        """The health reason if the validation has taken `LATE_AFTER_MS`; else empty."""
        took_ms = self._clock.monotonic_ms() - self._unvalidated_since_ms
        if not self.unvalidated or took_ms < LATE_AFTER_MS:
            return ()
        validated, total = self.concerned - self.unvalidated, self.concerned
        return (
            HealthReason.VALIDATING.text(
                validated=validated, total=total, minutes=took_ms // _MINUTE_MS
            ),
        )
