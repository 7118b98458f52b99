"""What a POSIX disk still has to keep, and what it may forget when the power goes.

Pure: nothing here touches a file. Two kinds of node, as in a file system:

- A `FileNode` holds the content of its last fsync and every write since. Each of these may be lost,
  kept in part, or leave zeros where its bytes were.
- A `DirectoryNode` holds the names of its last fsync. A change of names (create, rename, unlink,
  mkdir, rmdir) stays pending until one of the directories it touches is fsynced, and may be lost
  until then. Fsync of a file says nothing about its name.

Two promises are kept, because every journaling file system keeps them: a rename happens as a whole
or not at all, and changes of one name survive in their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from runtime.rng import Rng

_SECTOR_BYTES: Final = 512
_PIECES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written at a position since the last fsync."""

    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A new size, given since the last fsync."""

    size: int


class FileNode:
    """One file's content, under whatever name.

    Attributes:
        durable: the content of the last fsync.
        pending: what was done to it since, oldest first.
    """

    __slots__ = ("durable", "pending")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = bytearray(durable)
        self.pending: list[Write | Truncate] = []

    @property
    def newest(self) -> Write | Truncate | None:
        """The newest change that an fsync which begins now makes durable; None: there is none."""
        return self.pending[-1] if self.pending else None

    def commit(self, newest: Write | Truncate | None) -> None:
        """The end of an fsync: what was done up to `newest` survives, later changes need not."""
        count = next((n for n, one in enumerate(self.pending, 1) if one is newest), 0)
        for change in self.pending[:count]:
            _apply(self.durable, change)
        del self.pending[:count]

    def survivor(self, rng: Rng) -> bytes:
        """Draw one content that a cut may leave."""
        content = bytearray(self.durable)
        if not self.pending:
            return bytes(content)
        way = rng.random()
        if way < 0.2:
            return bytes(content)
        if way < 0.35:
            for change in self.pending:
                _apply(content, change)
            return bytes(content)
        self._mix(content, rng)
        return bytes(content)

    def _mix(self, content: bytearray, rng: Rng) -> None:
        """Sizes survive in their order up to some change; each sector of data has its own luck."""
        sizes_kept = int(rng.random() * (len(self.pending) + 1))
        luck = rng.random()
        for index, change in enumerate(self.pending):
            match change:
                case Truncate(size):
                    if index < sizes_kept:
                        _resize(content, size)
                case Write(position, data):
                    missing = position + len(data) - len(content)
                    if index > sizes_kept:
                        missing = 0
                    elif index == sizes_kept and missing > 0:
                        missing = int(rng.random() * (missing + 1))
                    content.extend(bytes(max(missing, 0)))
                    for start, end in _pieces(position, len(data)):
                        if rng.random() < luck:
                            stop = max(min(end, len(content)), start)
                            content[start:stop] = data[start - position : stop - position]


def _apply(content: bytearray, change: Write | Truncate) -> None:
    match change:
        case Truncate(size):
            _resize(content, size)
        case Write(position, data):
            if position > len(content):
                _resize(content, position)
            content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def _pieces(position: int, size: int) -> list[tuple[int, int]]:
    """Split a write at sector borders into not too many [start, end)."""
    step = _SECTOR_BYTES
    while size > step * _PIECES_MAX:
        step *= 2
    borders = [position, *range(position - position % step + step, position + size, step)]
    return list(zip(borders, [*borders[1:], position + size], strict=True))


@dataclass(slots=True, eq=False)
class DirectoryNode:
    """One directory.

    Attributes:
        live: its names as the running process sees them.
        durable: its names at the last fsync.
    """

    live: "dict[str, Node]" = field(default_factory=dict)
    durable: "dict[str, Node]" = field(default_factory=dict)


Node = FileNode | DirectoryNode


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A name in a directory."""

    directory: DirectoryNode
    name: str

    @property
    def key(self) -> tuple[int, str]:
        """Equal for the same name in the same directory."""
        return id(self.directory), self.name


@dataclass(frozen=True, slots=True)
class NameChange:
    """One atomic change of names.

    Attributes:
        node: what the change is about.
        gone: the name it loses (unlink, rmdir, the source of a rename).
        put: the name it gets (create, mkdir, the target of a rename).
    """

    node: Node
    gone: Place | None = None
    put: Place | None = None

    @property
    def places(self) -> list[Place]:
        """The names it touches."""
        return [place for place in (self.gone, self.put) if place is not None]

    @property
    def keys(self) -> set[tuple[int, str]]:
        """The names it touches, as keys."""
        return {place.key for place in self.places}

    def apply_live(self) -> None:
        """Make the change in what the process sees."""
        if self.gone is not None:
            self.gone.directory.live.pop(self.gone.name, None)
        if self.put is not None:
            self.put.directory.live[self.put.name] = self.node

    def apply_durable(self) -> None:
        """Make the change in what survives."""
        if self.gone is not None:
            self.gone.directory.durable.pop(self.gone.name, None)
        if self.put is not None:
            self.put.directory.durable[self.put.name] = self.node


class NameJournal:
    """Changes of names that no fsync of a directory has made durable yet, oldest first.

    Attributes:
        count: how many changes there ever were.
    """

    def __init__(self) -> None:
        self.count = 0
        self._pending: list[tuple[int, NameChange]] = []  # with its number, from 1

    def add(self, change: NameChange) -> None:
        """Take a change that the process has just made."""
        change.apply_live()
        self.count += 1
        self._pending.append((self.count, change))

    def commit(self, directory: DirectoryNode, count: int) -> None:
        """The end of an fsync of a directory that began when there were `count` changes.

        Its changes survive, with all earlier ones of the same names; later ones need not.
        """
        wanted: set[tuple[int, str]] = set()
        taken, left = [], []
        for number, change in reversed(self._pending):
            of_it = any(place.directory is directory for place in change.places)
            if number <= count and (of_it or change.keys & wanted):
                wanted |= change.keys
                taken.append(change)
            else:
                left.append((number, change))
        for change in reversed(taken):
            change.apply_durable()
        self._pending = left[::-1]

    def cut(self, rng: Rng) -> None:
        """Draw which pending changes survive, and make those durable."""
        for change in _survivors([change for _, change in self._pending], rng):
            change.apply_durable()
        self._pending.clear()


def _survivors(pending: Sequence[NameChange], rng: Rng) -> list[NameChange]:
    if rng.random() < 0.4:  # a journal: some first ones
        return list(pending[: int(rng.random() * (len(pending) + 1))])
    luck = rng.random()
    lost: set[tuple[int, str]] = set()
    kept = []
    for change in pending:
        if change.keys & lost or rng.random() >= luck:
            lost |= change.keys
        else:
            kept.append(change)
    return kept
