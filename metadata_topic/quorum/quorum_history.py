"""kraft.version and voters by offset: what control records say about the quorum, and from where on.

A snapshot stores what held at its own end, not what holds now; a truncation takes back what the
dropped records said.

Source: KIP-853; Kafka's KRaftVersion and VoterSetHistory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kafka_protocol.records.control import ControlType
from metadata_topic.quorum.batches import Control, voters_of
from metadata_topic.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class QuorumFacts:
    """What control records say about the quorum at one offset.

    Attributes:
        kraft_version: 0 with static voters.
        voters: None with kraft.version 0.
        in_log: they come from the log or a snapshot made of it, not from the format step alone.
    """

    kraft_version: int = 0
    voters: VoterSet | None = None
    in_log: bool = False


class QuorumHistory:
    """Facts in the order of the log."""

    def __init__(self, start: QuorumFacts | None = None, start_offset: int = 0) -> None:
        """Begin with what a snapshot says, which ends at `start_offset` (exclusive)."""
        # (first offset after the batch that said it, facts), by rising offset.
        self._entries = [(start_offset, start or QuorumFacts())]

    @property
    def latest(self) -> QuorumFacts:
        """What holds at the end of the log, committed or not."""
        return self._entries[-1][1]

    def note(self, next_offset: int, controls: Iterable[Control]) -> None:
        """Take the control records of the batch that ends before `next_offset`."""
        facts = self.latest
        for kind, value in controls:
            if kind == ControlType.KRAFT_VERSION:
                facts = replace(facts, kraft_version=value.kraft_version)
            elif kind == ControlType.KRAFT_VOTERS:
                facts = replace(facts, voters=voters_of(value), in_log=True)
        if facts != self.latest:
            self._entries.append((next_offset, facts))

    def set_voters(self, next_offset: int, voters: VoterSet) -> None:
        """Take note that the batch which ends before `next_offset` repeats the voters."""
        self._entries.append((next_offset, replace(self.latest, voters=voters, in_log=True)))

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
