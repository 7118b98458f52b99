"""What can happen to one log directory: real faults of a file system, and those of `FaultyDisk`.

A directory is a bind mount of a tmpfs that is mounted elsewhere, too: taking the mount away hides
the files and loses none. Where nothing may be mounted, directories are plain and the faults fewer.
"""

import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until

SIZE = "2g"
FAULTS_FILE = "faults.json"


@dataclass
class Disk:
    """One log directory of a broker.

    Attributes:
        path: as configured.
        keep: where its file system stays mounted; None: it is a plain directory.
    """

    broker: DirectoriesBroker
    path: Path
    keep: Path | None

    def mount(self) -> None:
        """Make and mount its file system, or the directory."""
        if self.keep is None or self.broker.namespace is None:
            self.path.mkdir(parents=True, exist_ok=True)
            return
        self.path.mkdir(parents=True)
        self.keep.mkdir(parents=True)
        self.broker.namespace.run(
            "mount", "-t", "tmpfs", "-o", f"size={SIZE}", "disk", str(self.keep)
        )
        self.bind()

    def run(self, *command: str) -> None:
        assert self.broker.namespace is not None
        self.broker.namespace.run(*command)

    def bind(self) -> None:
        self.run("mount", "--bind", str(self.keep), str(self.path))

    def remount(self, option: str) -> None:
        """Change an option of the whole file system."""
        self.run("mount", "-o", f"remount,{option}", str(self.keep))


class DirectoryFault(ABC):
    """One fault of one directory.

    Attributes:
        needs_mount: it is one of a file system of its own.
        hits_running: it can happen below a running broker.
        shows_running: traffic meets it at once; otherwise the broker's open files work on.
    """

    needs_mount = True
    hits_running = True
    shows_running = True

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    @abstractmethod
    def hit(self) -> None:
        """Let it happen."""

    @abstractmethod
    def heal(self) -> None:
        """Mend it; the broker does not run."""


class Full(DirectoryFault):
    """Not a byte is free."""

    def hit(self) -> None:
        until(self._fill, f"{self.disk.path} is full")

    def _fill(self) -> bool:
        assert self.disk.keep is not None
        facts = os.statvfs(self.disk.broker.seen(self.disk.keep))
        used = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        try:
            self.disk.remount(f"size={used}")
        except AssertionError:
            return False  # the broker wrote a page meanwhile
        return True

    def heal(self) -> None:
        self.disk.remount(f"size={SIZE}")


class ReadOnly(DirectoryFault):
    """Mounted read-only; the kernel refuses that below files that are open for writing."""

    hits_running = False

    def hit(self) -> None:
        self.disk.remount("ro")

    def heal(self) -> None:
        self.disk.remount("rw")


class Unmounted(DirectoryFault):
    """The empty mount point is all that is left of it."""

    shows_running = False

    def hit(self) -> None:
        self.disk.run("umount", "-l", str(self.disk.path))

    def heal(self) -> None:
        self.disk.bind()


class ReplacedByFile(DirectoryFault):
    """A file has the directory's name."""

    needs_mount = False
    shows_running = False

    def hit(self) -> None:
        if self.disk.keep is not None:
            self.disk.run("umount", "-l", str(self.disk.path))
        self.disk.path.rename(self._aside)
        self.disk.path.write_text("this is no directory\n")

    def heal(self) -> None:
        self.disk.path.unlink()
        self._aside.rename(self.disk.path)
        if self.disk.keep is not None:
            self.disk.bind()

    @property
    def _aside(self) -> Path:
        return self.disk.path.with_name(self.disk.path.name + ".aside")


class FaultyOperations(DirectoryFault):
    """Operations on its files fail inside the broker's process."""

    needs_mount = False
    error = 0
    operations: tuple[str, ...] = ()

    def hit(self) -> None:
        part = f"{self.disk.path}/"
        self._write([{"operations": self.operations, "path_part": part, "error": self.error}])

    def heal(self) -> None:
        self._write([])

    def _write(self, rules: list[Mapping[str, object]]) -> None:
        write_rules(self.disk.broker, rules)


class InputOutputError(FaultyOperations):
    """The disk is broken (EIO)."""

    error = 5
    operations = (
        *("append", "write_at", "fsync", "truncate", "rename"),
        *("open_append", "open_read", "open_write", "read_at"),
        *("unlink", "list_dir", "make_dirs"),
    )


class NoSpace(FaultyOperations):
    """Whatever makes a file longer fails (ENOSPC)."""

    error = 28
    operations = ("append", "write_at")


FAULTS: tuple[type[DirectoryFault], ...] = (
    Full,
    ReadOnly,
    Unmounted,
    ReplacedByFile,
    InputOutputError,
    NoSpace,
)


def write_rules(broker: DirectoriesBroker, rules: list[Mapping[str, object]]) -> None:
    """Give the broker's disk these faults, now if it runs, else from its next start on."""
    (broker.directory / FAULTS_FILE).write_text(json.dumps(rules))
    broker.run_with("--faults", str(broker.directory / FAULTS_FILE))
    if broker.process is not None and broker.process.poll() is None:
        os.kill(broker.pid, signal.SIGUSR1)


def valid_log_bytes(directory: Path, is_wanted: Callable[[str], bool]) -> int:
    """Bytes of whole batches in all segments, those set aside included.

    Args:
        directory: a log directory.
        is_wanted: which partition directories count, by name.
    """
    total = 0
    for path in directory.glob("*/*.log*"):
        if is_wanted(path.parent.name):
            total += whole_batches_bytes(path.read_bytes())
    return total


def whole_batches_bytes(data: bytes) -> int:
    """Where the last whole batch of a segment ends."""
    position = 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if end > len(data) or end <= position + 12:
            break
        position = end
    return position
