"""Files in memory, on a machine that loses power, fills up and breaks: a disk for simulations.

    machine = MemoryMachine()
    disk = MemoryDisk(machine)             # of one process
    disk.append(disk.open_append(Path("/data/log")), b"...")
    disk.end_after(3)                      # the process ends in the third change from now on
    machine.cut(rng)                      # the power goes: one of the states that are possible
    disk = MemoryDisk(machine)             # of the next process

What a power cut may leave is `power_cut_model`'s, as in `PowerCutDisk`; here nothing is real, so
that a run is fast and the same everywhere. A process that only ends (a kill) leaves all that it
wrote. Nothing blocks: before an operation has its effect its cost is told to `takes`, for pools
that know time. What is written while an fsync lasts is not made durable by it.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from runtime.disk import Buffer, Disk, Lock, LockHeldError, OpenFile
from tests.support.sim.memory_machine import MemoryMachine, MemoryNode
from tests.support.sim.power_cut_model import DirectoryNode, NameChange, Place


class ProcessEnded(BaseException):
    """The process is no more. No `except Exception` of the code that ran may continue after it."""


class MemoryFile(OpenFile):
    """An open file; it has no descriptor."""

    __slots__ = ("node",)

    def __init__(self, path: Path, node: MemoryNode) -> None:
        super().__init__(-1, path)
        self.node = node

    def size(self) -> int:
        """Bytes in the file now."""
        return len(self.node.live)


class _MemoryLock(Lock):
    __slots__ = ("_held", "_path")

    def __init__(self, held: set[Path], path: Path) -> None:
        self._held, self._path = held, path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryDisk(Disk):
    """The files of a machine as one process has them.

    Attributes:
        is_over: the process has ended; whatever it still asks for, it does not get.
        takes: told what an operation costs, in microseconds; returns when it has its effect.
    """

    def __init__(self, machine: MemoryMachine) -> None:
        super().__init__()
        self.machine = machine
        self.is_over = False
        self.takes: Callable[[int], object] | None = None
        self._left: int | None = None

    def boot_id(self) -> str:
        return f"boot {self.machine.boots}"

    def end_after(self, operations: int | None) -> None:
        """Let the process end in the change or fsync of this number from now on (from 1)."""
        self._left = operations

    def end(self) -> None:
        """The process has ended."""
        self.is_over = True

    # -- each call ------------------------------------------------------------------------------

    def _begin(self, operation: str, path: Path | str) -> None:
        if self.is_over:
            raise ProcessEnded
        machine = self.machine
        if self.takes is not None and machine.cost_us is not None:
            self.takes(machine.cost_us(operation, path))
            if self.is_over:
                raise ProcessEnded
        if machine.fault is not None:
            error = machine.fault(operation, path)
            if error:
                raise OSError(error, os.strerror(error), str(path))

    def _spend(self) -> None:
        self.machine.changes += 1
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self.is_over = True
                raise ProcessEnded

    def _file(self, path: Path) -> MemoryNode:
        node = self.machine.find(path)
        if isinstance(node, MemoryNode):
            return node
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))

    def _directory(self, path: Path) -> DirectoryNode:
        node = self.machine.find(path)
        if isinstance(node, DirectoryNode):
            return node
        error = errno.ENOENT if node is None else errno.ENOTDIR
        raise OSError(error, os.strerror(error), str(path))

    def _place(self, path: Path) -> Place:
        place = self.machine.place(path)
        if place is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return place

    @staticmethod
    def _node(file: OpenFile) -> MemoryNode:
        assert isinstance(file, MemoryFile)
        return file.node

    # -- open -----------------------------------------------------------------------------------

    def open_read(self, path: Path) -> OpenFile:
        """Open an existing file."""
        self._begin("open_read", path)
        return MemoryFile(path, self._file(path))

    def _opened(self, operation: str, path: Path) -> MemoryFile:
        self._begin(operation, path)
        node = self.machine.find(path)
        if node is not None:
            return MemoryFile(path, self._file(path))
        made = MemoryNode()
        made.modified_ms = self.machine.now_ms()
        self.machine.change_names(NameChange(made, put=self._place(path)))
        self._spend()
        return MemoryFile(path, made)

    def open_append(self, path: Path) -> OpenFile:
        """Open or create; the name of a new file may be lost."""
        return self._opened("open_append", path)

    def open_write(self, path: Path) -> OpenFile:
        """Open or create; the name of a new file may be lost."""
        return self._opened("open_write", path)

    def open_empty(self, path: Path) -> OpenFile:
        """Create or empty; both may be lost."""
        file = self._opened("open_empty", path)
        if file.node.live:
            file.node.resize(0)
            self._spend()
        return file

    def lock(self, path: Path) -> Lock:
        """Take the lock file; whoever ends a process clears `MemoryMachine.locks`."""
        self._begin("lock", path)
        if path in self.machine.locks:
            raise LockHeldError(path)
        self.machine.locks.add(path)
        return _MemoryLock(self.machine.locks, path)

    # -- read -----------------------------------------------------------------------------------

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        """Read."""
        self._begin("read_at", file.path)
        return bytes(memoryview(self._node(file).live)[position : position + size])

    def read_resident(self, file: OpenFile, position: int, size: int) -> bytes | None:
        """Read; all is in memory."""
        return self.read_at(file, position, size)

    def read_into(self, file: OpenFile, position: int, buffer: bytearray | memoryview) -> int:
        """Read."""
        data = self.read_at(file, position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def is_resident(self, file: OpenFile, position: int, size: int) -> bool:
        """All is in memory."""
        return True

    # -- write ----------------------------------------------------------------------------------

    def append(self, file: OpenFile, data: Buffer) -> None:
        """Write at the end; a full disk takes a half."""
        node = self._node(file)
        try:
            self._begin("append", file.path)
        except OSError:
            node.write(len(node.live), memoryview(data)[: len(data) // 2])
            self._spend()
            raise
        node.write(len(node.live), data)
        node.modified_ms = self.machine.now_ms()
        self._spend()

    def write_at(self, file: OpenFile, position: int, data: Buffer) -> None:
        """Write; lost in whole or in part, or zeros, unless fsynced."""
        self._begin("write_at", file.path)
        node = self._node(file)
        node.write(position, data)
        node.modified_ms = self.machine.now_ms()
        self._spend()

    def fsync(self, file: OpenFile) -> None:
        """Make the content survive, but not the name."""
        node = self._node(file)
        newest = node.newest
        self._begin("fsync", file.path)
        self._spend()
        node.commit(newest)

    def fsync_path(self, path: Path) -> None:
        """Make a file's content or a directory's names survive."""
        node, count = self.machine.find(path), self.machine.journal.count
        newest = node.newest if isinstance(node, MemoryNode) else None
        self._begin("fsync_path", path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self._spend()
        if isinstance(node, DirectoryNode):
            self.machine.journal.commit(node, count)
        else:
            node.commit(newest)

    def truncate(self, file: OpenFile, size: int) -> None:
        """Cut or extend; lost unless fsynced."""
        self._begin("truncate", file.path)
        self._node(file).resize(size)
        self._spend()

    # -- names ----------------------------------------------------------------------------------

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        """Rename; lost as a whole unless the directory is fsynced."""
        self._begin("rename", target)
        node = self.machine.find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        gone, put = self._place(source), self._place(target)
        self.machine.change_names(NameChange(node, gone, put))
        self._spend()
        if durable:
            self.fsync_path(target.parent)

    def unlink(self, path: Path, *, missing_ok: bool = True) -> None:
        """Remove a name; it comes back unless the directory is fsynced."""
        self._begin("unlink", path)
        node = self.machine.find(path)
        if node is None:
            if missing_ok:
                return
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self.machine.change_names(NameChange(node, self._place(path)))
        self._spend()

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""
        self._begin("list_dir", path)
        return sorted(self._directory(path).live)

    def is_dir(self, path: Path) -> bool:
        """Whether it is a directory."""
        self._begin("is_dir", path)
        return isinstance(self.machine.find(path), DirectoryNode)

    def make_dirs(self, path: Path) -> None:
        """Make a directory and its parents, each a change of names of its own."""
        self._begin("make_dirs", path)
        if isinstance(self.machine.find(path), DirectoryNode):
            return
        self.make_dirs(path.parent)
        self.machine.change_names(NameChange(DirectoryNode(), put=self._place(path)))
        self._spend()

    def remove_dir(self, path: Path) -> None:
        """Remove an empty directory; it comes back unless the parent is fsynced."""
        self._begin("remove_dir", path)
        node = self._directory(path)
        if node.live:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self.machine.change_names(NameChange(node, self._place(path)))
        self._spend()

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it; fine if it is gone."""
        if not self.is_dir(path):
            return
        for name in self.list_dir(path):
            child = path / name
            if self.is_dir(child):
                self.remove_tree(child)
            else:
                self.unlink(child)
        self.remove_dir(path)

    def free_bytes(self, path: Path) -> int:
        """Memory never fills."""
        self._begin("free_bytes", path)
        return 1 << 40

    def total_bytes(self, path: Path) -> int:
        """As much as is free."""
        self._begin("total_bytes", path)
        return 1 << 40

    def exists(self, path: Path) -> bool:
        """Whether something has this name."""
        self._begin("exists", path)
        return self.machine.find(path) is not None

    def size(self, path: Path) -> int:
        """Bytes of a file by its name."""
        self._begin("size", path)
        return len(self._file(path).live)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Say when a file was last written."""
        self._begin("set_modified_ms", path)
        self._file(path).modified_ms = modified_ms

    def modified_ms(self, path: Path) -> int:
        """When the file was last written."""
        self._begin("modified_ms", path)
        return self._file(path).modified_ms
