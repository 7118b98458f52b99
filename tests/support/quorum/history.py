"""What a client was told of its changes, and whether the metadata agree.

A topic's changes are asked for one after the other. While each is acknowledged or refused, one
state is possible; after an answer that does not say (none, a timeout, "not the controller", which a
deposed controller says of what its successor may commit) there are two, and the topic is left
alone from then on: what was sent may take effect any time later.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class TopicState:
    """What the metadata say of a topic."""

    topic_id: bytes
    partition_count: int
    configs: tuple[tuple[str, str], ...] = ()

    def with_config(self, name: str, value: str | None) -> "TopicState":
        others = [one for one in self.configs if one[0] != name]
        added = [] if value is None else [(name, value)]
        return TopicState(self.topic_id, self.partition_count, tuple(sorted(others + added)))


@dataclass
class Subject:
    """One topic name.

    Attributes:
        known: its state as long as only one is possible; None: there is no such topic.
        also: what else is possible since an answer was unknown. A topic whose creation was not
            answered has an id that nobody was told: `bytes(16)` stands for any.
        is_settled: nothing that was asked for is unknown.
        calls: for messages.
    """

    name: str
    known: TopicState | None = None
    also: TopicState | None = None
    is_settled: bool = True
    calls: list[str] = field(default_factory=list)

    def note(self, what: str, outcome: Outcome, after: TopicState | None, said: str) -> None:
        """A change was asked for that leads to `after`."""
        assert self.is_settled, f"{self.name} is changed although its state is unknown"
        self.calls.append(f"{what}: {outcome.value} {said}".rstrip())
        if outcome is Outcome.ACKNOWLEDGED:
            self.known = after
        elif outcome is Outcome.UNKNOWN:
            self.also, self.is_settled = after, False

    def fits(self, found: TopicState | None) -> bool:
        if found == self.known:
            return True
        if self.is_settled:
            return False
        if found is None or self.also is None or any(self.also.topic_id):
            return found == self.also
        return (found.partition_count, found.configs) == (
            self.also.partition_count,
            self.also.configs,
        )


class History:
    """All topics that were ever asked for."""

    def __init__(self) -> None:
        self.subjects: dict[str, Subject] = {}
        self.counts: Counter[tuple[str, Outcome]] = Counter()
        self.errors: Counter[str] = Counter()

    def subject(self, name: str) -> Subject:
        return self.subjects.setdefault(name, Subject(name))

    def count(self, what: str, outcome: Outcome, said: str) -> None:
        self.counts[what, outcome] += 1
        if said:
            self.errors[said] += 1

    @property
    def acknowledged(self) -> int:
        return self.total(Outcome.ACKNOWLEDGED)

    def total(self, outcome: Outcome) -> int:
        return sum(count for (_, one), count in self.counts.items() if one is outcome)

    def contradictions(self, found: Mapping[str, TopicState], where: str) -> list[str]:
        """What the metadata say that cannot be; a sentence each."""
        wrong = [f"{where}: nobody asked for topic {name}" for name in found.keys() - self.subjects]
        for name, subject in self.subjects.items():
            state = found.get(name)
            if not subject.fits(state):
                may = f"{subject.known}" + ("" if subject.is_settled else f" or {subject.also}")
                wrong.append(f"{where}: {name} is {state}, must be {may}; {subject.calls}")
        return wrong
