"""The packed golden directories are whole before a test reads them."""

import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.support.samples.golden_files import ARCHIVE, MARKER, TEMPORARY, unpack

FILES = {"partitions/a-0/0.log": b"records", "partitions/a-0/0.index": b"", "tier/0.log": b"more"}


def pack(golden: Path, files: dict[str, bytes], source: Path) -> None:
    for name, data in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    with tarfile.open(golden / ARCHIVE, "w:xz") as tar:
        for top in sorted(source.iterdir()):
            tar.add(top, top.name)


def unpacked(golden: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(golden)): path.read_bytes()
        for path in golden.rglob("*")
        if path.is_file() and path.name not in {ARCHIVE, MARKER}
    }


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    folder = tmp_path / "golden"
    folder.mkdir()
    pack(folder, FILES, tmp_path / "first")
    unpack(folder)
    assert unpacked(folder) == FILES
    return folder


def without_directories(golden: Path) -> None:
    for name in FILES:
        (golden / name).unlink()
    for top in ("partitions/a-0", "partitions", "tier"):
        (golden / top).rmdir()


def without_a_file(golden: Path) -> None:
    (golden / "partitions/a-0/0.index").unlink()


def with_a_cut_file(golden: Path) -> None:
    (golden / "tier/0.log").write_bytes(b"mor")


def with_a_file_more(golden: Path) -> None:
    (golden / "tier/1.log").write_bytes(b"")


def with_a_marker_of_earlier_form(golden: Path) -> None:
    (golden / MARKER).write_text("4c99f1a77d8b94964a9a53ad33d6ea3a")


def of_a_process_that_was_killed(golden: Path) -> None:
    (golden / TEMPORARY / "new/tier").mkdir(parents=True)
    (golden / TEMPORARY / "new/tier/0.log").write_bytes(b"m")


@pytest.mark.parametrize(
    "change",
    [
        without_directories,
        without_a_file,
        with_a_cut_file,
        with_a_file_more,
        with_a_marker_of_earlier_form,
        of_a_process_that_was_killed,
    ],
)
def test_a_tree_that_is_not_the_archives_is_unpacked_again(
    golden: Path, change: Callable[[Path], None]
) -> None:
    change(golden)
    unpack(golden)
    assert unpacked(golden) == FILES


def test_a_whole_tree_is_left_alone(golden: Path) -> None:
    before = (golden / "tier/0.log").stat().st_ino
    unpack(golden)
    assert (golden / "tier/0.log").stat().st_ino == before


def test_a_directory_that_a_new_archive_has_not_goes(golden: Path, tmp_path: Path) -> None:
    (golden / "dumps").mkdir()
    (golden / "dumps/tracked.txt").write_bytes(b"of git")
    other = {"partitions/b-0/0.log": b"other", "offsets/0.log": b"new"}
    pack(golden, other, tmp_path / "second")
    unpack(golden)
    assert unpacked(golden) == {**other, "dumps/tracked.txt": b"of git"}
    assert not (golden / "tier").exists()


def test_all_that_unpack_at_once_find_the_tree_whole(golden: Path) -> None:
    at_once = 4
    start = Barrier(at_once)

    def one(_: int) -> dict[str, bytes]:
        start.wait()
        unpack(golden)
        return unpacked(golden)

    with ThreadPoolExecutor(at_once) as pool:
        for _ in range(10):
            (golden / MARKER).unlink()
            assert list(pool.map(one, range(at_once))) == [FILES] * at_once


def cannot_be_written(golden: Path) -> None:
    """Also for root, to whom no mode says so: no directory can have the name of a file."""
    (golden / MARKER).unlink()
    (golden / TEMPORARY).touch()


def test_a_whole_tree_need_not_be_writable(golden: Path) -> None:
    cannot_be_written(golden)
    unpack(golden)


def test_a_tree_that_is_not_whole_and_not_writable_is_one_error(golden: Path) -> None:
    cannot_be_written(golden)
    without_a_file(golden)
    with pytest.raises(pytest.UsageError, match=r"directories\.tar\.xz cannot be unpacked: "):
        unpack(golden)
