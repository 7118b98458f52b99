"""kraft.version and voters by offset: what control records say about the quorum, and from where on.

A snapshot stores what held at its own end, not what holds now; a truncation takes back what the
dropped records said.

Source: KIP-853; Kafka's KRaftVersion and VoterSetHistory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from metadata_topic.raft.messages import BatchFacts
from metadata_topic.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class QuorumFacts:
    """What control records say about the quorum at one offset.

    Attributes:
        kraft_version: 0 with static voters.
        voters: None with kraft.version 0 on disk; the core gets the configured ones.
        in_log: they come from the log or a snapshot made of it, not from the format step alone.
    """

    kraft_version: int = 0
    voters: VoterSet | None = None
    in_log: bool = False


class VoterHistory:
    """Facts in the order of the log."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[int, QuorumFacts]]) -> None:
        """Take (first offset after the batch that said it, facts), by rising offset; one at least.

        The first entry is what a snapshot, the format step or the configuration says.
        """
        self._entries = list(entries)
        assert self._entries, "a history begins with something"

    @property
    def entries(self) -> tuple[tuple[int, QuorumFacts], ...]:
        """All of it, as `__init__` takes it."""
        return tuple(self._entries)

    @property
    def latest(self) -> QuorumFacts:
        """What holds at the end of the log, committed or not."""
        return self._entries[-1][1]

    @property
    def latest_end(self) -> int:
        """First offset (exclusive end) after the batch that said what holds now."""
        return self._entries[-1][0]

    @property
    def static(self) -> QuorumFacts:
        """What held before kraft.version 1, which only an uncommitted record can take back."""
        facts = (one for _, one in reversed(self._entries) if one.kraft_version == 0)
        return replace(next(facts, self.latest), kraft_version=0, in_log=False)

    @property
    def before_latest(self) -> QuorumFacts | None:
        """What held before that; None where the log does not say."""
        return self._entries[-2][1] if len(self._entries) > 1 else None

    def note(self, batch: BatchFacts) -> None:
        """Take what the control records of a batch say, from its end on."""
        facts = self.latest
        if batch.kraft_version is not None:
            facts = replace(facts, kraft_version=batch.kraft_version)
        if batch.voters is not None:
            facts = replace(facts, voters=batch.voters, in_log=True)
        if facts != self.latest:
            self._entries.append((batch.end_offset, facts))

    def at(self, end_offset: int) -> QuorumFacts:
        """What the records below `end_offset` (exclusive) say."""
        for offset, facts in reversed(self._entries):
            if offset <= end_offset:
                return facts
        return self._entries[0][1]

    def truncate_to(self, end_offset: int) -> None:
        """Forget what records at and after `end_offset` said."""
        while len(self._entries) > 1 and self._entries[-1][0] > end_offset:
            self._entries.pop()

    def restart_at(self, end_offset: int, facts: QuorumFacts) -> None:
        """Begin again with what the snapshot that ends at `end_offset` says."""
        self._entries = [(end_offset, facts)]
