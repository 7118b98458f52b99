"""What the store of fsspec repeats, and what attempts that failed leave behind."""

import errno
import io
import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.fsspec.calls import CallLimits
from rsm_plugins.fsspec.objects import FsspecStore
from rsm_plugins.testing import BreakingFile

BODY = bytes(range(256)) * (3 << 12)  # three writes


class Disk(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A local disk behind a network: it fails, or hangs, where a test says so.

    Attributes:
        errors: by method, raised by its next calls, one each.
        asked: every method called.
        gate: where it is set to an event, files are closed when that is set, and not before.
    """

    protocol = ("elsewhere",)
    cachable = False

    def __init__(self) -> None:
        super().__init__(skip_instance_cache=True)
        self.errors: dict[str, list[Exception]] = {}
        self.asked: list[str] = []
        self.gate: threading.Event | None = None

    def _meet(self, name: str) -> None:
        self.asked.append(name)
        if self.errors.get(name):
            raise self.errors[name].pop(0)

    def info(self, path: str, **options: Any) -> Any:
        self._meet("info")
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        self._meet("ls")
        return super().ls(path, detail=detail, **options)

    def rm_file(self, path: str) -> None:
        self._meet("rm_file")
        super().rm_file(path)

    def cat_file(self, path: str, **options: Any) -> Any:
        self._meet("cat_file")
        return super().cat_file(path, **options)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        self._meet("mv")
        super().mv(path1, path2, **options)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super().open(path, mode, **options)
        return _File(file, self) if "w" in mode else file


class _File:
    def __init__(self, inner: Any, disk: Disk) -> None:
        self._inner, self._disk, self._gate = inner, disk, disk.gate

    def write(self, chunk: bytes) -> Any:
        self._disk._meet("write")
        return self._inner.write(chunk)

    def close(self) -> None:
        if self._gate is not None:
            self._gate.wait(60)
        self._inner.close()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(disk: Disk, tmp_path: Path) -> Iterator[FsspecStore]:
    store = FsspecStore(
        disk, str(tmp_path / "root"), rename=True, limits=CallLimits(30, attempts=3)
    )
    store.check()
    yield store
    store.close()


def busy() -> Exception:
    return OSError(errno.EBUSY, "busy")


def whole(store: FsspecStore, key: str) -> bytes:
    with io.BufferedReader(store.get(key)) as stream:
        return stream.read()


def files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def test_a_file_that_was_half_written_is_written_whole_by_the_next_attempt(
    store: FsspecStore, disk: Disk, tmp_path: Path
) -> None:
    source = io.BytesIO(BODY)
    disk.errors["write"] = [busy(), busy()]
    assert store.put("a/k", source).size_bytes == len(BODY)
    assert whole(store, "a/k") == BODY
    assert files(tmp_path / "root") == ["a/k"]
    disk.errors["mv"] = [busy()]
    store.put("a/k", io.BytesIO(BODY[::-1]))
    assert whole(store, "a/k") == BODY[::-1]
    assert files(tmp_path / "root") == ["a/k"]


def test_what_a_put_that_is_given_up_wrote_is_removed(
    store: FsspecStore, disk: Disk, tmp_path: Path
) -> None:
    disk.errors["mv"] = [busy() for _ in range(3)]
    with pytest.raises(RetriableRemoteStorageError, match="busy"):
        store.put("a/k", io.BytesIO(BODY))
    assert disk.asked.count("mv") == 3
    assert files(tmp_path / "root") == []


def test_the_file_of_an_attempt_that_hung_goes_when_a_later_one_is_through(
    disk: Disk, tmp_path: Path
) -> None:
    store = FsspecStore(disk, str(tmp_path / "root"), rename=True, limits=CallLimits(1))
    disk.gate = gate = threading.Event()

    class Hurries(io.BytesIO):
        """The second attempt begins: from now on files are closed at once."""

        begun = 0

        def seek(self, *args: int) -> int:
            self.begun += args == (0,)
            if self.begun == 2:
                disk.gate = None
            return super().seek(*args)

    assert store.put("a/k", Hurries(BODY)).size_bytes == len(BODY)
    assert whole(store, "a/k") == BODY
    assert files(tmp_path / "root") == ["a/k"]
    gate.set()
    store.close()


def test_a_source_that_breaks_is_not_read_again(
    store: FsspecStore, disk: Disk, tmp_path: Path
) -> None:
    for after in (10, 2 << 20):
        with pytest.raises(OSError, match="disk under this file broke"):
            store.put("a/k", BreakingFile(BODY, after=after))
    assert disk.asked.count("write") == 2  # of the second source, before it broke
    assert files(tmp_path / "root") == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(errno.EACCES, "no"), RemoteStorageError),
        (ValueError("bad argument"), RemoteStorageError),
        (OSError(errno.ENOSPC, "full"), RetriableRemoteStorageError),
        (FileNotFoundError(errno.ENOENT, "missing"), RemoteResourceNotFoundError),
    ],
    ids=repr,
)
def test_what_does_not_pass_is_asked_for_once(
    error: Exception,
    expected: type[Exception],
    store: FsspecStore,
    disk: Disk,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk.errors["info"] = [error]
    with pytest.raises(expected):
        store.get("k")
    assert disk.asked == ["info"]
    assert caplog.records == []


def test_reads_listings_and_deletions_are_repeated_with_a_line_each(
    store: FsspecStore, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("a/k", io.BytesIO(BODY))
    disk.errors |= {"cat_file": [busy(), busy()], "ls": [busy()], "rm_file": [busy()]}
    with caplog.at_level(logging.WARNING):
        assert whole(store, "a/k") == BODY
        assert [one.key for one in store.list_objects()] == ["a/k"]
        store.delete(["a/k"])
    assert [one.key for one in store.list_objects()] == []
    lines = [one.getMessage() for one in caplog.records]
    assert len(lines) == 3
    assert "what=fetch of a/k outcome=done repeated=2" in lines[0]
    assert "what=list of" in lines[1]
    assert "what=delete of a/k outcome=done repeated=1" in lines[2]


def test_all_attempts_of_a_request_share_its_time(disk: Disk, tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    patient = FsspecStore(disk, root, rename=True, limits=CallLimits(30))
    patient.check()
    patient.put("k", io.BytesIO(BODY))
    store = FsspecStore(disk, root, rename=True, limits=CallLimits(2, 0.3, 20))
    disk.gate = threading.Event()
    with pytest.raises(RetriableRemoteStorageError, match=r"no answer within 0\."):
        store.put("other", io.BytesIO(b"hangs"))  # for 2 s, were the call's time not over before
    disk.gate.set()
    disk.errors["cat_file"] = [busy() for _ in range(100)]
    with pytest.raises(RetriableRemoteStorageError, match="busy"):
        whole(store, "k")
    assert disk.asked.count("cat_file") < 20
    store.close()
    patient.close()


def test_a_closed_store_begins_no_further_attempt(store: FsspecStore, disk: Disk) -> None:
    store.put("k", io.BytesIO(BODY))

    class Closes(OSError):
        """Closes the store while its request fails."""

        def __str__(self) -> str:
            store.close()
            return "busy"

    disk.errors["cat_file"] = [Closes(errno.EBUSY, "busy")]
    with pytest.raises(RetriableRemoteStorageError, match="closed between two attempts"):
        whole(store, "k")
    assert disk.asked.count("cat_file") == 1


def test_a_large_object_has_its_time_for_each_part_of_it(
    store: FsspecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no slow line would ever get one through."""
    monkeypatch.setattr("rsm_plugins.fsspec.objects._BYTES_PER_CALL_TIMEOUT", len(BODY) // 2)
    within, given = store.calls.together_within, list[float]()

    def noted(seconds: float) -> AbstractContextManager[None]:
        given.append(seconds)
        return within(seconds)

    monkeypatch.setattr(store.calls, "together_within", noted)
    store.put("a/1.log", io.BytesIO(BODY))
    store.put("a/2.log", io.BytesIO(b"short"))
    assert given == [3 * 60, 60]
