"""A replica's log as its disk has it, read from the bytes and not from the broker.

What is read again is only what has changed: an append costs its own bytes.
"""

from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from kafka_protocol.records.batch import HEADER_SIZE, MAGIC, has_valid_crc, read_header
from tests.support.replication_world.plan import LOGS
from tests.support.sim.memory_machine import MemoryMachine, MemoryNode
from tests.support.sim.power_cut_model import DirectoryNode


class Stamp(NamedTuple):
    """A batch, and what tells it from others."""

    base: int
    end: int
    epoch: int
    crc: int
    producer_id: int
    sequence: int
    size_bytes: int


class _Segment:
    """One file, as far as it was read; `ends` are positions after each batch."""

    __slots__ = ("base", "count", "ends", "node", "rewrites", "size")

    def __init__(self, base: int, node: MemoryNode) -> None:
        self.base, self.node = base, node
        self.size = self.count = 0
        self.ends: list[int] = []
        self.rewrites = node.rewrites


class Copy:
    """See the module.

    Attributes:
        batches: all that can be read.
        bases: the offset at which each begins.
        start: where the first segment begins.
        agrees_to: it has all that was told, up to this offset (exclusive).
    """

    def __init__(self, machine: MemoryMachine, name: str) -> None:
        self.machine, self.path = machine, LOGS / name
        self.batches: list[Stamp] = []
        self.bases: list[int] = []
        self.start = self.agrees_to = 0
        self._segments: list[_Segment] = []
        self._seen_names = -1

    @property
    def end(self) -> int:
        """First offset (exclusive) that is not in it."""
        return self.batches[-1].end if self.batches else self.start

    @property
    def has_files(self) -> bool:
        """Whether there is a log of it."""
        return bool(self._segments)

    @property
    def bytes_above_first(self) -> int:
        """What would be left without the oldest file."""
        return sum(one.size for one in self._segments[1:])

    @property
    def in_first(self) -> list[Stamp]:
        """Batches of the oldest file, where there is another."""
        if len(self._segments) < 2:
            return []
        return self.batches[: self.index_at(self._segments[1].base)]

    def index_at(self, offset: int) -> int:
        """Place of the batch that begins at `offset`, or of the first after it."""
        return bisect_left(self.bases, offset)

    def look(self) -> tuple[int, bool]:
        """Look at the disk again: how many batches are new at the end, and whether others went."""
        if self.machine.name_changes != self._seen_names:
            self._seen_names = self.machine.name_changes
            if not self._has_same_segments():
                return self._read_all()
        for one in self._segments:
            if one.node.rewrites != one.rewrites:
                return self._read_all()
        last = self._segments[-1] if self._segments else None
        if last is None or len(last.node.live) <= last.size:
            return 0, False
        return self._read(last), False

    def _has_same_segments(self) -> bool:
        found = self.machine.log_files(self.path)
        known = [(one.base, one.node) for one in self._segments]
        if known and len(found) == len(known) + 1 and found[:-1] == known:
            last = self._segments[-1]
            if len(last.node.live) == last.size:
                self._segments.append(_Segment(*found[-1]))
                return True
        return found == known

    def _read_all(self) -> tuple[int, bool]:
        before = self.batches
        self.batches, self.bases = [], []
        self._segments = [_Segment(base, node) for base, node in self.machine.log_files(self.path)]
        self.start = self._segments[0].base if self._segments else 0
        for segment in self._segments:
            if segment.base != self.end:
                break  # a power cut has left a hole, which the next start finds
            self._read(segment)
        same = 0
        if before and self.batches:
            first = bisect_left([one.base for one in before], self.bases[0])
            kept = before[first:]
            while same < min(len(kept), len(self.batches)) and kept[same] == self.batches[same]:
                same += 1
            if same == len(kept):
                return len(self.batches) - same, False
        return len(self.batches) - same, bool(before)

    def _read(self, segment: _Segment) -> int:
        live, position, count = segment.node.live, segment.size, 0
        while position + HEADER_SIZE <= len(live):
            header = read_header(live, position)
            after = position + header.size_bytes
            is_whole = header.magic == MAGIC and header.size_bytes >= HEADER_SIZE
            if not is_whole or after > len(live) or not has_valid_crc(live, position, header):
                break
            if header.base_offset != self.end:
                break
            stamp = Stamp(
                header.base_offset,
                header.next_offset,
                header.partition_leader_epoch,
                header.crc,
                header.producer_id,
                header.base_sequence,
                header.size_bytes,
            )
            self.batches.append(stamp)
            self.bases.append(stamp.base)
            segment.ends.append(after)
            position, count = after, count + 1
        segment.size = position
        segment.count += count
        segment.rewrites = segment.node.rewrites
        return count

    @property
    def durable_end(self) -> int:
        """Up to where (exclusive) a power cut leaves everything."""
        names = self.machine.durable(self.path)
        if not isinstance(names, DirectoryNode):
            return self.start
        end, place = self.start, 0
        for segment in self._segments:
            if names.durable.get(_name(segment.base)) is not segment.node:
                return end
            durable, live = segment.node.durable, segment.node.live
            begin = 0
            for after in segment.ends:
                if len(durable) < after or durable[begin:after] != live[begin:after]:
                    return end
                begin, end = after, self.batches[place].end
                place += 1
        return end


def _name(base: int) -> str:
    return f"{base:020}.log"


def name_of(topic: str, partition: int) -> str:
    """The directory of a partition."""
    return str(Path(f"{topic}-{partition}"))
