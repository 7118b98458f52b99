"""A call that was given up may still be carried out: it must not undo what was answered since."""

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.fsspec.calls import CallLimits
from rsm_plugins.fsspec.objects import FsspecStore
from rsm_plugins.hdfs.plugin import LibHdfsStore

BODY = bytes(range(256)) * 16


class LateDisk(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A local disk behind a server that fails over: the first call of one method comes late.

    Attributes:
        is_back: the server answers again.
        is_done: the late call was carried out, in whatever way.
    """

    protocol = ("hdfs",)
    cachable = False

    def __init__(self, late: str) -> None:
        super().__init__(skip_instance_cache=True)
        self._late = late
        self.is_back, self.is_done = threading.Event(), threading.Event()

    def _meet(self, name: str, call: Callable[[], None]) -> None:
        if name != self._late:
            call()
            return
        self._late = ""
        self.is_back.wait(60)
        try:
            call()
        finally:
            self.is_done.set()

    def rm_file(self, path: str) -> None:
        self._meet("rm_file", lambda: super(LateDisk, self).rm_file(path))

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """In two steps, as `AbstractFileSystem.mv` of a file system that has nothing better."""

        def copied() -> None:
            target = Path(path2)
            target.write_bytes(b"")
            target.write_bytes(Path(path1).read_bytes())
            Path(path1).unlink()

        self._meet("mv", copied)


@pytest.mark.parametrize(("late", "kind"), [("rm_file", LibHdfsStore), ("mv", FsspecStore)])
def test_an_object_that_a_put_answered_for_outlives_a_move_that_comes_late(
    late: str, kind: type[FsspecStore], tmp_path: Path
) -> None:
    disk = LateDisk(late)
    store = kind(disk, str(tmp_path / "root"), rename=True, limits=CallLimits(0.5))
    store.check()
    is_answered = True
    try:
        store.put("a/k", io.BytesIO(BODY))
    except RetriableRemoteStorageError:
        is_answered = False  # then nothing counts on it
    disk.is_back.set()
    assert disk.is_done.wait(60)
    target = tmp_path / "root" / "a" / "k"
    assert not is_answered or target.read_bytes() == BODY
    assert not is_answered, "it may be carried out at any time: another attempt is none of ours"
    store.delete(["a/k"])
    assert [path for path in (tmp_path / "root").rglob("*") if path.is_file()] == []
    store.close()
