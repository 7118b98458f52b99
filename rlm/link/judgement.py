"""What a broker knows of the tier's judgement of a partition that it leads. Pure.

Not judged yet, judged sound and a loss that was found are three different values: offsets above the
log end are out of range only where the log end was judged sound (docs/tiering.md §6).
"""

from enum import Enum
from typing import TypeAlias, assert_never

from rlm.link.messages import CopiedThrough, JudgementWithdrawn, Loss, LossFound, Report


class Judgement(Enum):
    """A state without a loss."""

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
