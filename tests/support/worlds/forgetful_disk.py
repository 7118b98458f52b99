"""Real files on a machine whose power cut forgets names: what no fsync of a directory has kept."""

from collections.abc import Callable
from pathlib import Path

from runtime.disk import Buffer, Disk, OpenFile
from runtime.rng import Rng
from tests.support.sim.power_cut_disk import PowerCutError

Undo = Callable[[], None]
FORGETS = {
    "creations": frozenset({"create"}),
    "renames": frozenset({"rename"}),
    "removals": frozenset({"unlink"}),
    "everything": frozenset({"create", "rename", "unlink"}),
}


class QuickDisk(Disk):
    """Real files that nobody waits for; the machine stays on."""

    def fsync(self, file: OpenFile) -> None:
        """Nothing is lost without it."""

    def fsync_path(self, path: Path) -> None:
        """Nothing is lost without it."""


class ForgetfulDisk(Disk):
    """Loses power after so many operations; then names since the last fsync of their directory go.

    Each forgotten kind of change is undone with the chance `chance`, newest first. Content is
    forgotten, too: a file that was never fsynced comes back empty, one that was fsynced keeps what
    it had then. Files that the page cache writes by itself (indexes) stay as they are.
    """

    def boot_id(self) -> str:
        return ""  # each of its ends may be one of the machine

    def __init__(self, rng: Rng, operations: int, kinds: str, *, chance: float = 1.0) -> None:
        super().__init__()
        self._rng = rng
        self._left = operations
        self._kinds = FORGETS[kinds]
        self._chance = chance
        self._undo: dict[Path, list[tuple[str, Undo]]] = {}
        self._synced: dict[int, int] = {}  # size at the last fsync by inode, of files appended to

    @property
    def is_off(self) -> bool:
        return self._left <= 0

    def _tick(self) -> None:
        if self._left > 0:
            self._left -= 1
            if self._left == 0:
                self.cut()
        if self._left <= 0:
            raise PowerCutError

    def cut(self) -> None:
        """Lose power now."""
        self._left = 0
        sizes = {path.stat().st_ino: path for path in self._files()}
        for inode, size in self._synced.items():
            if inode in sizes and sizes[inode].stat().st_size > size:
                with sizes[inode].open("r+b") as file:
                    file.truncate(size)
        for changes in self._undo.values():
            for kind, undo in reversed(changes):
                if kind in self._kinds and self._rng.random() < self._chance:
                    undo()

    def _files(self) -> list[Path]:
        return [p for d in self._undo for p in d.iterdir() if p.is_file()] if self._undo else []

    def _changed(self, path: Path, kind: str, undo: Undo) -> None:
        self._undo.setdefault(path.parent, []).append((kind, undo))

    def _created(self, path: Path, *, existed: bool) -> None:
        if not existed:
            self._changed(path, "create", lambda: path.unlink(missing_ok=True))

    def open_append(self, path: Path) -> OpenFile:
        self._tick()
        existed = path.exists()
        file = super().open_append(path)
        self._created(path, existed=existed)
        self._undo.setdefault(path.parent, [])
        self._synced.setdefault(path.stat().st_ino, path.stat().st_size if existed else 0)
        return file

    def append(self, file: OpenFile, data: Buffer) -> None:
        self._tick()
        super().append(file, data)

    def fsync(self, file: OpenFile) -> None:
        self._tick()
        self._note_synced(Path(file.path))

    def fsync_path(self, path: Path) -> None:
        self._tick()
        if path.is_dir():
            self._undo[path] = []
        else:
            self._note_synced(path)

    def _note_synced(self, path: Path) -> None:
        status = path.stat()
        if status.st_ino in self._synced:
            self._synced[status.st_ino] = status.st_size

    def atomic_write(self, path: Path, data: Buffer, *, durable: bool = True) -> None:
        """As one change: without `durable` the old content may come back, or an empty file."""
        self._tick()
        old = path.read_bytes() if path.exists() else None
        super().atomic_write(path, data, durable=False)

        def undo() -> None:
            if old is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(old)

        self._changed(path, "rename", undo)
        if durable:
            self.fsync_path(path.parent)

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        self._tick()
        old = target.read_bytes() if target.exists() else None
        super().rename(source, target, durable=False)

        def undo() -> None:
            if target.exists():
                target.rename(source)
            if old is not None:
                target.write_bytes(old)

        self._changed(target, "rename", undo)
        if durable:
            self.fsync_path(target.parent)

    def unlink(self, path: Path, *, missing_ok: bool = True) -> None:
        self._tick()
        content = path.read_bytes() if path.exists() else None
        if content is not None:
            self._synced.pop(path.stat().st_ino, None)
        super().unlink(path, missing_ok=missing_ok)
        if content is not None:
            kept = content
            self._changed(path, "unlink", lambda: _give_back(path, kept))

    def make_dirs(self, path: Path) -> None:
        self._tick()
        existed = path.exists()
        super().make_dirs(path)
        if not existed:
            self._changed(path, "create", lambda: _remove(path))

    def truncate(self, file: OpenFile, size: int) -> None:
        self._tick()
        super().truncate(file, size)


def _give_back(path: Path, content: bytes) -> None:
    if not path.exists():
        path.write_bytes(content)


def _remove(path: Path) -> None:
    if path.is_dir():
        Disk().remove_tree(path)
