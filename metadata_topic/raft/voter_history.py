"""kraft.version and voters by offset, from the control records of the log.

A snapshot stores the facts at its own end, not the present ones. A truncation undoes the facts of
the dropped records.

Source: KIP-853; Kafka's KRaftVersion and VoterSetHistory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from metadata_topic.raft.messages import BatchFacts
from metadata_topic.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class QuorumFacts:
    """Quorum facts of the control records up to one offset.

    Attributes:
        kraft_version: 0 with static voters.
        voters: None with kraft.version 0 on disk; the core gets the configured ones.
        in_log: They come from the log or a snapshot of it, not only from the format step.
    """

    kraft_version: int = 0
    voters: VoterSet | None = None
    in_log: bool = False


class VoterHistory:
    """Facts in the order of the log."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[int, QuorumFacts]]) -> None:
        """Take (first offset after the batch, its facts), by rising offset; at least one entry.

        The first entry has the facts of a snapshot, the format step or the configuration.
        """
        self._entries = list(entries)
        assert self._entries, "a history begins with something"

    @property
    def entries(self) -> tuple[tuple[int, QuorumFacts], ...]:
        """All entries, in the form of `__init__`."""
        return tuple(self._entries)

    @property
    def latest(self) -> QuorumFacts:
        """Facts at the end of the log, committed or not."""
        return self._entries[-1][1]

    @property
    def latest_end(self) -> int:
        """First offset (exclusive end) after the batch of the latest facts."""
        return self._entries[-1][0]

    @property
    def static(self) -> QuorumFacts:
        """Facts before kraft.version 1; the loss of an uncommitted record restores them."""
        facts = (one for _, one in reversed(self._entries) if one.kraft_version == 0)
        return replace(next(facts, self.latest), kraft_version=0, in_log=False)

    @property
    def before_latest(self) -> QuorumFacts | None:
        """Facts before the latest ones; None if the log has none."""
        return self._entries[-2][1] if len(self._entries) > 1 else None

    def note(self, batch: BatchFacts) -> None:
        """Take the facts of a batch's control records, valid from its end on."""
        facts = self.latest
        if batch.kraft_version is not None:
            facts = replace(facts, kraft_version=batch.kraft_version)
        if batch.voters is not None:
            facts = replace(facts, voters=batch.voters, in_log=True)
        if facts != self.latest:
            self._entries.append((batch.end_offset, facts))

    def at(self, end_offset: int) -> QuorumFacts:
        """Return the facts of the records below `end_offset` (exclusive)."""
        for offset, facts in reversed(self._entries):
            if offset <= end_offset:
                return facts
        return self._entries[0][1]

    def truncate_to(self, end_offset: int) -> None:
        """Drop the facts of records at and after `end_offset`."""
        while len(self._entries) > 1 and self._entries[-1][0] > end_offset:
            self._entries.pop()

    def restart_at(self, end_offset: int, facts: QuorumFacts) -> None:
        """Begin again with the facts of the snapshot that ends at `end_offset`."""
        self._entries = [(end_offset, facts)]
