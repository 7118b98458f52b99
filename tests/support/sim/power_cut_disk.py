"""Real files on a machine that loses power: the simulated side of `Disk` for crash tests.

    disk = PowerCutDisk(directory, rng, operations=40)   # the power goes in the 40th operation
    try:
        work(disk)
    except PowerCutError:
        pass
    work(Disk())          # the next life sees one of the states that were possible

The running process sees its files as on any disk. At the cut the tree below `root` is rewritten to
one of the states that a POSIX disk may have then (see `tests.support.sim.power_cut_model`). The
rng draw it, so that a seed replays it. What was below `root` when the disk was made counts as
durable.

A kill is the mild case (`kills`): the process ends, the machine continues. What was written is
there for the next process, and may be lost still by a later cut: the same disk serves both.

Nothing is read after the cut, either: a process that continues in another thread must not take what
the next one will find for its own. Files that something else writes below `root` (a library,
another disk) are durable as they are when this disk first meets them; those it never meets are left
alone. Writing through anything else to a file that this disk knows is not supported.
"""

import os
import shutil
import threading
from pathlib import Path

from runtime.disk import Buffer, Disk, OpenFile
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


class PowerCutError(Exception):
    """The machine is off: the call did not happen, or not as a whole."""


class PowerCutDisk(Disk):
    """See the module."""

    def boot_id(self) -> str:
        return ""  # each of its ends may be one of the machine

    def __init__(
        self, root: Path, rng: Rng, operations: int | None = None, *, kills: bool = False
    ) -> None:
        """Take what is below `root` as durable.

        Args:
            root: an existing directory; paths outside of it are ordinary files.
            rng: draw what survives.
            operations: the power goes in the operation of this number (from 1), each a call that
                changes something or fsyncs; None: only when `cut` is called.
            kills: in that operation only the process ends.
        """
        super().__init__()
        self._root = root
        self._rng = rng
        self._left, self._kills = operations, kills
        self._off = False
        self._lock = threading.RLock()
        self._journal = NameJournal()
        self._files: dict[tuple[int, int], FileNode] = {}  # by device and inode, while it lives
        self._tree = self._adopt_directory(root)

    @property
    def is_off(self) -> bool:
        """Whether the power is gone."""
        return self._off

    def cut(self) -> None:
        """Cut the power now; every later call raises PowerCutError."""
        with self._lock:
            if self._off:
                return
            self._off = True
            self._journal.cut(self._rng)
            self._rewrite(self._root, self._tree)

    def kill(self) -> None:
        """End the process now; every later call raises PowerCutError, until `begin`."""
        self._off = True

    def begin(self, operations: int | None = None, *, kills: bool = False) -> None:
        """Serve the process after one that was killed, or that has ended; as in `__init__`."""
        self._left, self._kills, self._off = operations, kills, False

    # -- the power ------------------------------------------------------------------------------

    def _need_power(self) -> None:
        if self._off:
            raise PowerCutError

    def _spend(self) -> None:
        """Count an operation; in the last one the power goes."""
        if self._left is None:
            return
        self._left -= 1
        if self._left <= 0:
            if self._kills:
                self.kill()
            else:
                self.cut()
            raise PowerCutError

    # -- finding nodes --------------------------------------------------------------------------

    def _adopt(self, path: Path) -> Node:
        if path.is_dir() and not path.is_symlink():
            return self._adopt_directory(path)
        node = FileNode(path.read_bytes())
        self._register(path.stat(), node)
        return node

    def _adopt_directory(self, path: Path) -> DirectoryNode:
        names = {name: self._adopt(path / name) for name in sorted(os.listdir(path))}
        return DirectoryNode(names, dict(names))

    def _register(self, facts: os.stat_result, node: FileNode) -> None:
        self._files[facts.st_dev, facts.st_ino] = node

    def _place(self, path: Path) -> Place | None:
        """Find the name in its directory; None for what is not on this disk."""
        if path == self._root or not path.is_relative_to(self._root):
            return None
        directory = self._tree
        *parents, name = path.relative_to(self._root).parts
        at = self._root
        for parent in parents:
            at /= parent
            found = self._known(Place(directory, parent), at)
            if not isinstance(found, DirectoryNode):
                return None
            directory = found
        return Place(directory, name)

    def _known(self, place: Place, path: Path) -> Node | None:
        """What has this name; a stranger is taken in as durable."""
        node = place.directory.live.get(place.name)
        if node is None and path.exists():
            node = self._adopt(path)
            place.directory.live[place.name] = place.directory.durable[place.name] = node
        return node

    def _node_at(self, path: Path) -> Node | None:
        if path == self._root:
            return self._tree
        place = self._place(path)
        return None if place is None else self._known(place, path)

    def _node_of(self, file: OpenFile) -> FileNode | None:
        facts = os.fstat(file.fd)
        return self._files.get((facts.st_dev, facts.st_ino))

    # -- reading --------------------------------------------------------------------------------

    def open_read(self, path: Path) -> OpenFile:
        """Open an existing file."""
        self._need_power()
        return super().open_read(path)

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        """Read."""
        self._need_power()
        return super().read_at(file, position, size)

    def read_resident(self, file: OpenFile, position: int, size: int) -> bytes | None:
        """Read."""
        self._need_power()
        return super().read_resident(file, position, size)

    def read_into(self, file: OpenFile, position: int, buffer: bytearray | memoryview) -> int:
        """Read."""
        self._need_power()
        return super().read_into(file, position, buffer)

    def list_dir(self, path: Path) -> list[str]:
        """List."""
        self._need_power()
        return super().list_dir(path)

    def exists(self, path: Path) -> bool:
        """Look."""
        self._need_power()
        return super().exists(path)

    def is_dir(self, path: Path) -> bool:
        """Look."""
        self._need_power()
        return super().is_dir(path)

    def size(self, path: Path) -> int:
        """Look."""
        self._need_power()
        return super().size(path)

    def modified_ms(self, path: Path) -> int:
        """Look."""
        self._need_power()
        return super().modified_ms(path)

    # -- content --------------------------------------------------------------------------------

    def _opened(self, path: Path, flags: int) -> OpenFile:
        """Open or create; a file made by this is empty, and its name is not safe yet."""
        with self._lock:
            self._need_power()
            place = self._place(path)
            known = None if place is None else self._known(place, path)
            file = OpenFile(os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o644), path)
            if place is not None and known is None:
                node = FileNode()
                self._register(os.fstat(file.fd), node)
                self._journal.add(NameChange(node, put=place))
                self._spend()
            return file

    def open_append(self, path: Path) -> OpenFile:
        """Open or create; the name of a new file may be lost."""
        return self._opened(path, os.O_RDWR | os.O_APPEND)

    def open_write(self, path: Path) -> OpenFile:
        """Open or create; the name of a new file may be lost."""
        return self._opened(path, os.O_RDWR)

    def open_empty(self, path: Path) -> OpenFile:
        """Create or empty; both may be lost."""
        file = self._opened(path, os.O_RDWR)
        if file.size():
            self.truncate(file, 0)
        return file

    def create_private(self, path: Path, data: Buffer) -> None:
        """As `Disk`'s, in steps that are lost as those of other files."""
        with self._lock:
            self._need_power()
            if path.exists():
                raise FileExistsError(path)
            file = self._opened(path, os.O_RDWR)
            os.fchmod(file.fd, 0o600)
            self.write_at(file, 0, data)
            self.fsync(file)
            file.close()
            self.fsync_path(path.parent)

    def append(self, file: OpenFile, data: Buffer) -> None:
        """Write at the end; lost in whole or in part, or zeros, unless fsynced."""
        with self._lock:
            self._need_power()
            node, position = self._node_of(file), file.size()
            super().append(file, data)
            if node is not None:
                node.pending.append(Write(position, bytes(data)))
                self._spend()

    def write_at(self, file: OpenFile, position: int, data: Buffer) -> None:
        """Write; lost in whole or in part, or zeros, unless fsynced."""
        with self._lock:
            self._need_power()
            super().write_at(file, position, data)
            node = self._node_of(file)
            if node is not None:
                node.pending.append(Write(position, bytes(data)))
                self._spend()

    def truncate(self, file: OpenFile, size: int) -> None:
        """Cut or extend; lost unless fsynced."""
        with self._lock:
            self._need_power()
            super().truncate(file, size)
            node = self._node_of(file)
            if node is not None:
                node.pending.append(Truncate(size))
                self._spend()

    def fsync(self, file: OpenFile) -> None:
        """Make the content survive, but not the name. The real disk is spared the work."""
        with self._lock:
            self._need_power()
            node = self._node_of(file)
            if node is not None:
                self._spend()
                node.commit(node.newest)

    def fsync_path(self, path: Path) -> None:
        """Make a file's content or a directory's names survive."""
        with self._lock:
            self._need_power()
            os.stat(path)  # what is not there cannot be fsynced
            node = self._node_at(path)
            if node is not None:
                self._spend()
            match node:
                case FileNode():
                    node.commit(node.newest)
                case DirectoryNode():
                    self._journal.commit(node, self._journal.count)
                case None:
                    pass

    # -- names ----------------------------------------------------------------------------------

    def _renamed(self, gone: Place | None, put: Place | None, node: Node | None) -> None:
        if node is not None and (gone is not None or put is not None):
            self._journal.add(NameChange(node, gone, put))
            self._spend()

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        """Rename; lost as a whole unless the directory is fsynced."""
        with self._lock:
            self._need_power()
            gone, put = self._place(source), self._place(target)
            node = self._node_at(source)
            if put is not None:
                self._known(put, target)  # a stranger that is replaced comes back if this is lost
            super().rename(source, target)
            self._renamed(gone, put, node)
        if durable:
            self.fsync_path(target.parent)

    def unlink(self, path: Path, *, missing_ok: bool = True) -> None:
        """Remove a name; it comes back unless the directory is fsynced."""
        with self._lock:
            self._need_power()
            place, node = self._place(path), self._node_at(path)
            super().unlink(path, missing_ok=missing_ok)
            self._renamed(place, None, node)

    def make_dirs(self, path: Path) -> None:
        """Make a directory and its parents, each a change of names of its own."""
        with self._lock:
            self._need_power()
            if path.is_dir():
                return
            self.make_dirs(path.parent)
            place = self._place(path)
            path.mkdir(exist_ok=True)
            self._renamed(None, place, DirectoryNode())

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory; it comes back unless the parent is fsynced."""
        with self._lock:
            self._need_power()
            place, node = self._place(path), self._node_at(path)
            super().remove_dir(path)
            self._renamed(place, None, node)

    # -- the cut --------------------------------------------------------------------------------

    def _rewrite(self, path: Path, directory: DirectoryNode, *, moved: bool = False) -> None:
        """Make the real directory what survives of it; files that are open keep what they had.

        Args:
            path: where it is now.
            directory: what it holds.
            moved: it was not here before the cut, so that all of it must be written.
        """
        for name, node in directory.live.items():
            if directory.durable.get(name) is not node and not moved:
                _remove(path / name)
        for name, node in directory.durable.items():
            at = path / name
            is_new = moved or directory.live.get(name) is not node
            match node:
                case DirectoryNode():
                    at.mkdir(exist_ok=True)
                    self._rewrite(at, node, moved=is_new)
                case FileNode():
                    if is_new or node.pending:
                        content = node.survivor(self._rng)
                        at.unlink(missing_ok=True)
                        at.write_bytes(content)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
