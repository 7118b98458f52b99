"""What health says where something of the tier is unhealthy: what is wrong, and the remedy.

Every such text is made here, of a member of a `HealthReason`, and a kind cannot be without a
remedy. A test compares the table in docs/operations.md with the kinds, so that each is explained
there.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from string import Formatter
from typing import NewType

from kafka_protocol.errors import TidemarkError
from rsm_plugins.raised import described, raised_at

HealthText = NewType("HealthText", str)
"""A text that names its remedy; only `HealthReason.text` and `joined` make one."""

HEALTHY = HealthText("")


class _Facts(dict[str, object]):
    """Facts by name. A text that lacks one is better than none."""

    def __missing__(self, name: str) -> str:
        return "?"


def _facts(facts: Mapping[str, object]) -> _Facts:
    """An error that is none of ours, and not of the system, is named with its class and place."""
    return _Facts(
        (name, named(fact) if isinstance(fact, BaseException) else fact)
        for name, fact in facts.items()
    )


def named(error: BaseException) -> str:
    """The text of an error; of one that no interface has its class and place, too."""
    is_plain = isinstance(error, TidemarkError | OSError) and not raised_at(error)
    return str(error) or repr(error) if is_plain else described(error)


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
        return Formatter().vformat(self.parts[0], (), _facts(facts))

    def text(self, **facts: object) -> HealthText:
        """What health says with these facts, and the remedy."""
        remedy = Formatter().vformat(self.parts[2], (), _facts(facts))
        return HealthText(f"{self.said(**facts)}. Remedy: {remedy}")


def joined(reasons: Iterable[HealthText]) -> HealthText:
    """Several texts as one."""
    return HealthText("; ".join(reasons))
