"""A node's metadata log as its disk has it, read from the bytes and not from the node.

The oracle's view of a disk. Batches are those that the
process sees; `flushed_end` is how far a power cut would leave them, with their files' names.
"""

from bisect import bisect_left
from dataclasses import dataclass

from kafka_protocol.records.batch import LOG_OVERHEAD
from metadata_topic.quorum.driver.quorum_state_file import QUORUM_STATE, parse_quorum_state
from metadata_topic.quorum.errors import UnusableMetadataError
from metadata_topic.quorum.log.fetched import checked_prefix
from metadata_topic.quorum.snapshot.snapshots import read_snapshot
from metadata_topic.raft.events import ElectionState
from metadata_topic.raft.messages import BOOTSTRAP_ID, BatchFacts, SnapshotId
from metadata_topic.raft.voters import VoterSet
from tests.support.quorum_world.plan import METADATA
from tests.support.sim.memory_machine import MemoryMachine, MemoryNode
from tests.support.sim.power_cut_model import DirectoryNode

_SUFFIX = ".checkpoint"


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch in a log."""

    facts: BatchFacts
    payload: bytes


class Segment:
    """One file of the log, as far as it was read.

    Attributes:
        ends: position after each batch, in order.
    """

    __slots__ = ("base", "batches", "ends", "node", "rewrites", "size")

    def __init__(self, base: int, node: MemoryNode) -> None:
        self.base, self.node = base, node
        self.batches: list[Batch] = []
        self.ends: list[int] = []
        self.size = 0
        self.rewrites = node.rewrites


class LogMirror:
    """See the module.

    Attributes:
        directory: id of the metadata directory.
        start_offset: where the node says that its log begins.
        batches: all that can be read, from the first segment on.
        bases: the offset at which each begins.
        voters_said: the first offset after each batch that says who votes, and whom it names.
    """

    def __init__(self, machine: MemoryMachine, directory: bytes) -> None:
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        self.voters_said: list[tuple[int, VoterSet]] = []
        self.machine = machine
        self.directory = directory
        self.start_offset = 0
        self._segments: list[Segment] = []
        self._seen = self._seen_names = -1
        self._flushed: tuple[int, int] = (-1, 0)
        self._named: tuple[int, tuple[tuple[int, VoterSet], ...]] = (-1, ())
        self._read_voters: dict[SnapshotId, tuple[MemoryNode, int, VoterSet | None]] = {}

    # -- reading --------------------------------------------------------------------------------

    def news(self) -> list[Batch]:
        """Look at the disk again; batches that were not there before, in order."""
        machine = self.machine
        if machine.changes == self._seen:
            return []
        self._seen = machine.changes
        if machine.name_changes != self._seen_names:
            self._seen_names = machine.name_changes
            if not self._has_same_segments():
                return self._read_all()
        if any(one.node.rewrites != one.rewrites for one in self._segments):
            return self._read_all()
        new: list[Batch] = []
        for segment in self._segments:
            if len(segment.node.live) > segment.size:
                new += self._read(segment)
        for batch in new:
            self._add(batch)
        return new

    def _has_same_segments(self) -> bool:
        found = self.machine.log_files(METADATA)
        known = [(one.base, one.node) for one in self._segments]
        if len(found) == len(known) + 1 and found[:-1] == known:
            self._segments.append(Segment(*found[-1]))
            return True
        return found == known

    def _read_all(self) -> list[Batch]:
        old = set(self.batches)
        self._clear()
        self._segments = [Segment(base, node) for base, node in self.machine.log_files(METADATA)]
        new: list[Batch] = []
        for segment in self._segments:
            if self.batches and segment.base != self.batches[-1].facts.end_offset:
                self._clear()  # a hole: what is before does not count
                new = []
            for batch in self._read(segment):
                self._add(batch)
                if batch not in old:
                    new.append(batch)
        return new

    def _read(self, segment: Segment) -> list[Batch]:
        live = segment.node.live
        at = segment.size
        data = bytes(memoryview(live)[at:])
        new = []
        position = 0
        expected = segment.batches[-1].facts.end_offset if segment.batches else segment.base
        batches: list[BatchFacts] = []
        checked = checked_prefix(data)  # of very many batches the first
        while checked.batches and checked.batches[0].base_offset == expected:
            batches += checked.batches
            expected = batches[-1].end_offset
            position += len(checked.data)
            checked = checked_prefix(data[position:])
        position = 0
        for facts in batches:
            end = (
                position + LOG_OVERHEAD + int.from_bytes(data[position + 8 : position + 12], "big")
            )
            new.append(Batch(facts, data[position:end]))
            segment.ends.append(at + end)
            position = end
        segment.batches += new
        segment.size += position
        segment.rewrites = segment.node.rewrites
        return new

    def _add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.bases.append(batch.facts.base_offset)
        if batch.facts.voters is not None:
            self.voters_said.append((batch.facts.end_offset, batch.facts.voters))

    def _clear(self) -> None:
        self.batches, self.bases, self.voters_said = [], [], []

    # -- what an oracle asks --------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """First offset (exclusive end) that is not in the log."""
        if self.batches:
            return self.batches[-1].facts.end_offset
        return self._segments[-1].base if self._segments else 0

    @property
    def first_offset(self) -> int:
        """Of the first batch that can be read."""
        return self.bases[0] if self.bases else self.end_offset

    def index_at(self, offset: int) -> int:
        """Place of the batch that begins at `offset`, or of the first after it."""
        return bisect_left(self.bases, offset)

    def is_boundary(self, offset: int) -> bool:
        """Whether no batch has records both below and from `offset` on."""
        if offset in (self.start_offset, self.end_offset):
            return True
        index = self.index_at(offset)
        return index < len(self.bases) and self.bases[index] == offset

    def batch_ending_at(self, end_offset: int) -> Batch | None:
        """The batch before a boundary; None below the first one."""
        index = self.index_at(end_offset)
        return self.batches[index - 1] if index else None

    def epoch_before(self, end_offset: int) -> int:
        """Epoch of the last record below `end_offset`, in log or snapshot."""
        batch = self.batch_ending_at(end_offset)
        if batch is not None:
            return batch.facts.epoch
        ends = [one.epoch for one in self.snapshots() if one.end_offset <= end_offset]
        return ends[-1] if ends else 0

    def snapshots(self, *, durable: bool = False) -> list[SnapshotId]:
        """Snapshots by their names."""
        find = self.machine.durable if durable else self.machine.find
        directory = find(METADATA)
        if not isinstance(directory, DirectoryNode):
            return []
        names = directory.durable if durable else directory.live
        found = []
        for name in names:
            if name.endswith(_SUFFIX) and name != f"bootstrap{_SUFFIX}":
                end, _, epoch = name.removesuffix(_SUFFIX).partition("-")
                found.append(SnapshotId(int(end), int(epoch)))
        return sorted(one for one in found if one != BOOTSTRAP_ID)

    def parts(self) -> int:
        """How many half fetched or half written files there are."""
        directory = self.machine.find(METADATA)
        assert isinstance(directory, DirectoryNode)
        return sum(name.endswith((".part", ".tmp")) for name in directory.live)

    # -- who votes by it ------------------------------------------------------------------------

    @property
    def voters_by_offset(self) -> tuple[tuple[int, VoterSet], ...]:
        """Who votes from which end offset on, by log, snapshots and the format step."""
        return tuple(sorted((*self._voters_of_snapshots(), *self.voters_said), key=_end_of))

    @property
    def voters(self) -> tuple[int, VoterSet]:
        """Who votes by all of it, and the end offset of the record that says so; 0: none does."""
        known = self.voters_by_offset
        if not known:
            return 0, VoterSet(())
        since, voters = known[-1]
        for end, said in reversed(known):
            if said != voters:
                break
            since = end
        return since, voters

    def voters_of(self, snapshot_id: SnapshotId) -> VoterSet | None:
        """Whom a snapshot names; None: nobody, or it is not whole."""
        node = self.machine.find(METADATA / snapshot_id.file_name)
        if not isinstance(node, MemoryNode):
            return None
        known = self._read_voters.get(snapshot_id)
        if known is None or known[:2] != (node, len(node.live)):
            try:
                voters = read_snapshot(bytes(node.live)).voters
            except UnusableMetadataError:
                voters = None
            self._read_voters[snapshot_id] = known = node, len(node.live), voters
        return known[2]

    def _voters_of_snapshots(self) -> tuple[tuple[int, VoterSet], ...]:
        changes, found = self._named
        if changes != self.machine.name_changes:
            ids = (BOOTSTRAP_ID, *self.snapshots())
            said = ((one.end_offset, self.voters_of(one)) for one in ids)
            found = tuple((end, voters) for end, voters in said if voters is not None)
            self._named = self.machine.name_changes, found
        return found

    # -- what is durable ------------------------------------------------------------------------

    @property
    def flushed_end(self) -> int:
        """Up to where (exclusive) a power cut leaves everything."""
        seen, end = self._flushed
        if seen != self.machine.changes:
            end = self._durable_end()
            self._flushed = (self.machine.changes, end)
        return end

    def _durable_end(self) -> int:
        ends = [one.end_offset for one in self.snapshots(durable=True)]
        covered = max(ends, default=0)
        names = self.machine.durable(METADATA)
        if not isinstance(names, DirectoryNode):
            return covered  # a first start is under way: not even the directory would be left
        end = None
        for segment in self._segments:
            if names.durable.get(f"{segment.base:020}.log") is not segment.node:
                break
            durable, live = segment.node.durable, segment.node.live
            count = len(segment.batches)
            while count and not (
                len(durable) >= segment.ends[count - 1]
                and durable[segment.ends[count - 2] if count > 1 else 0 : segment.ends[count - 1]]
                == live[segment.ends[count - 2] if count > 1 else 0 : segment.ends[count - 1]]
            ):
                count -= 1
            end = segment.batches[count - 1].facts.end_offset if count else segment.base
            if count < len(segment.batches):
                break
        return max(covered, end or 0)

    @property
    def election(self) -> ElectionState | None:
        """What quorum-state says after a power cut; None: there is no such file then."""
        node = self.machine.durable(METADATA / QUORUM_STATE)
        return parse_quorum_state(bytes(node.durable)) if isinstance(node, MemoryNode) else None


def _end_of(said: tuple[int, VoterSet]) -> int:
    return said[0]
