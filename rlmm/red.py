"""What health says where something of the tier is red: what is wrong, and the way out.

Every such text is made here, of a member of a `RedKind`, and a kind cannot be without a way out.
A test compares the table in docs/operations.md with the kinds, so that each is explained there.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from string import Formatter
from typing import NewType

from kafka_protocol.errors import TidemarkError
from rsm_plugins.raised import described, raised_at

RedText = NewType("RedText", str)
"""A text that names its way out; only `RedKind.text` and `joined` make one."""

NOT_RED = RedText("")


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


class RedKind(Enum):
    """One way to be red, as (what health says, its meaning, the way out).

    What health says and the way out hold facts as `{name}`; the meaning is for the documentation.
    """

    @property
    def parts(self) -> tuple[str, str, str]:
        """What health says, its meaning, the way out."""
        says, meaning, way_out = self.value
        return says, meaning, way_out

    def said(self, **facts: object) -> str:
        """What is wrong, without the way out: for log lines."""
        return Formatter().vformat(self.parts[0], (), _facts(facts))

    def text(self, **facts: object) -> RedText:
        """What health says with these facts, and the way out."""
        way_out = Formatter().vformat(self.parts[2], (), _facts(facts))
        return RedText(f"{self.said(**facts)}. Way out: {way_out}")


def joined(reasons: Iterable[RedText]) -> RedText:
    """Several texts as one."""
    return RedText("; ".join(reasons))
