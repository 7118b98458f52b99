"""What a machine with a disk in memory keeps when its processes end; see `memory_disk`."""

from collections.abc import Callable
from pathlib import Path

from runtime.disk import Buffer
from runtime.rng import Rng
from tests.support.sim.power_cut_model import (
    DirectoryNode,
    FileNode,
    NameChange,
    NameJournal,
    Node,
    Place,
    Truncate,
    Write,
)

Cost = Callable[[str, Path | str], int]
"""Microseconds that an operation (a method of `Disk`) takes."""
Fault = Callable[[str, Path | str], int]
"""The errno that an operation fails with, 0 for none."""


class MemoryNode(FileNode):
    """One file.

    Attributes:
        live: its content as a process sees it.
        rewrites: how often anything but an append changed it.
    """

    __slots__ = ("live", "modified_ms", "rewrites")

    def __init__(self) -> None:
        super().__init__()
        self.live = bytearray()
        self.modified_ms = 0
        self.rewrites = 0

    def write(self, position: int, data: Buffer) -> None:
        """Write bytes; not durable."""
        held, live = bytes(data), self.live
        if position != len(live):
            self.rewrites += 1
            if position > len(live):
                live.extend(bytes(position - len(live)))
        live[position : position + len(held)] = held
        self.pending.append(Write(position, held))

    def resize(self, size: int) -> None:
        """Cut or extend; not durable."""
        self.rewrites += 1
        del self.live[size:]
        self.live.extend(bytes(size - len(self.live)))
        self.pending.append(Truncate(size))

    def settle(self, rng: Rng) -> None:
        """Become what a power cut leaves."""
        if self.pending:
            self.durable = bytearray(self.survivor(rng))
            self.pending.clear()
        if self.live != self.durable:
            self.rewrites += 1
            self.live = bytearray(self.durable)


class MemoryMachine:
    """What outlives a process: files and names, durable or not yet.

    Attributes:
        changes: rises with each change and each fsync.
        name_changes: rises with each change of names.
        boots: rises with each power cut.
        now_ms: what time files are written at.
        fault: see `Fault`.
        cost_us: see `Cost`.
    """

    def __init__(self) -> None:
        self.root = DirectoryNode()
        self.journal = NameJournal()
        self.changes = self.name_changes = self.boots = 0
        self.locks: set[Path] = set()
        self.now_ms: Callable[[], int] = lambda: 0
        self.fault: Fault | None = None
        self.cost_us: Cost | None = None

    def cut(self, rng: Rng) -> None:
        """Lose power: of what is not durable some is left, as the rng decides."""
        self.changes += 1
        self.name_changes += 1
        self.boots += 1
        self.journal.cut(rng)
        self.locks.clear()
        _settle(self.root, rng)

    def copy_files(self) -> DirectoryNode:
        """A copy of all files as they are seen now, for `put_back`."""
        return _copied(self.root)

    def put_back(self, files: DirectoryNode) -> None:
        """Let the machine have these files and no others, durably; no process runs on it."""
        self.changes += 1
        self.name_changes += 1
        self.root, self.journal = _copied(files), NameJournal()

    def place(self, path: Path) -> Place | None:
        """The name in its directory; None if there is no such directory."""
        directory = self.root
        parts = path.parts
        for part in parts[1:-1]:
            found = directory.live.get(part)
            if not isinstance(found, DirectoryNode):
                return None
            directory = found
        return Place(directory, parts[-1])

    def find(self, path: Path) -> Node | None:
        """What has this name."""
        node: Node = self.root
        for part in path.parts[1:]:
            if not isinstance(node, DirectoryNode):
                return None
            found = node.live.get(part)
            if found is None:
                return None
            node = found
        return node

    def log_files(self, path: Path) -> list[tuple[int, MemoryNode]]:
        """The log files of a directory, if there is one, by the offsets in their names."""
        directory = self.find(path)
        if not isinstance(directory, DirectoryNode):
            return []
        return sorted(
            (int(name[:-4]), node)
            for name, node in directory.live.items()
            if name.endswith(".log") and isinstance(node, MemoryNode)
        )

    def durable(self, path: Path) -> Node | None:
        """What would have this name for sure after a power cut."""
        node: Node = self.root
        for part in path.parts[1:]:
            if not isinstance(node, DirectoryNode):
                return None
            found = node.durable.get(part)
            if found is None:
                return None
            node = found
        return node

    def change_names(self, change: NameChange) -> None:
        """Make a change of names; not durable."""
        self.changes += 1
        self.name_changes += 1
        self.journal.add(change)


def _copied(directory: DirectoryNode) -> DirectoryNode:
    copy = DirectoryNode()
    for name, node in directory.live.items():
        if isinstance(node, DirectoryNode):
            copy.durable[name] = _copied(node)
        elif isinstance(node, MemoryNode):
            file = copy.durable[name] = MemoryNode()
            file.durable, file.live = bytearray(node.live), bytearray(node.live)
            file.modified_ms = node.modified_ms
    copy.live = dict(copy.durable)
    return copy


def _settle(directory: DirectoryNode, rng: Rng) -> None:
    directory.live = dict(directory.durable)
    for name in sorted(directory.live):
        node = directory.live[name]
        if isinstance(node, DirectoryNode):
            _settle(node, rng)
        elif isinstance(node, MemoryNode):
            node.settle(rng)
