"""What health says where something of the tier is unhealthy: what is wrong, and the remedy.

Every such text is made here, of a member of a `HealthReason`, and a kind cannot be without a
remedy. A test compares the table in docs/operations.md with the kinds, so that each is explained
there.
"""

from collections.abc import Iterable
from enum import Enum
from string import Formatter
from typing import NewType

HealthText = NewType("HealthText", str)
"""A text that names its remedy; only `HealthReason.text` and `joined` make one."""

HEALTHY = HealthText("")


class _Facts(dict[str, object]):
    """Facts by name. A text that lacks one is better than none."""

    def __missing__(self, name: str) -> str:
        return "?"


class HealthReason(Enum):
    """One way to be unhealthy, as (what health says, its meaning, the remedy).

    What health says and the remedy hold facts as `{name}`; the meaning is for the documentation.
    """

    @property
    def parts(self) -> tuple[str, str, str]:
        """What health says, its meaning, the remedy."""
        says, meaning, remedy = self.value
        return says, meaning, remedy

    def said(self, **facts: object) -> str:
        """What is wrong, without the remedy: for log lines."""
        return Formatter().vformat(self.parts[0], (), _Facts(facts))

    def text(self, **facts: object) -> HealthText:
        """What health says with these facts, and the remedy."""
        remedy = Formatter().vformat(self.parts[2], (), _Facts(facts))
        return HealthText(f"{self.said(**facts)}. Remedy: {remedy}")


def joined(reasons: Iterable[HealthText]) -> HealthText:
    """Several texts as one."""
    return HealthText("; ".join(reasons))
