"""Files: whole writes, self-closing descriptors, locks, residency."""

import errno
import os
import resource
import subprocess
import sys

import pytest

from runtime.disk import Disk, FileRegion, LockHeldError, Mapping, raise_file_limit
from runtime.disk_errors import half_done, is_exhausted
from tests.support.brokers.process import environment
from tests.support.sim.faulty_disk import FaultyDisk


@pytest.fixture
def disk():
    return Disk()


def test_appended_bytes_are_read_at_their_place(disk, tmp_path):
    file = disk.open_append(tmp_path / "a")
    disk.append(file, b"hello ")
    disk.append(file, memoryview(bytearray(b"world")))
    assert (file.size(), disk.read_at(file, 6, 100), disk.read_at(file, 50, 10)) == (
        11,
        b"world",
        b"",
    )
    buffer = bytearray(8)
    assert disk.read_into(file, 8, buffer) == 3
    assert bytes(buffer[:3]) == b"rld"


def test_write_at_and_truncate_leave_zeros_between(disk, tmp_path):
    file = disk.open_write(tmp_path / "a")
    disk.write_at(file, 4, b"xy")
    disk.truncate(file, 8)
    assert disk.read_file(tmp_path / "a") == b"\0\0\0\0xy\0\0"


def test_file_closes_when_nobody_holds_it(disk, tmp_path):
    file = disk.open_append(tmp_path / "a")
    disk.append(file, b"abc")
    region, fd = FileRegion(file, 0, 3), file.fd
    del file
    disk.unlink(tmp_path / "a")
    assert disk.read_at(region.file, 0, 3) == b"abc"
    del region
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_closing_twice_is_fine(disk, tmp_path):
    file = disk.open_append(tmp_path / "a")
    file.close()
    file.close()


def test_atomic_write_replaces_the_whole_file(disk, tmp_path):
    disk.atomic_write(tmp_path / "c", b"one")
    disk.atomic_write(tmp_path / "c", b"second", durable=False)
    assert disk.read_file(tmp_path / "c") == b"second"
    assert disk.list_dir(tmp_path) == ["c"]


def test_lock_is_exclusive_until_released(disk, tmp_path):
    lock = disk.lock(tmp_path / ".lock")
    with pytest.raises(LockHeldError, match="locked by another process"):
        disk.lock(tmp_path / ".lock")
    lock.release()
    disk.lock(tmp_path / ".lock").release()


def test_a_lock_of_another_process_names_its_pid(tmp_path):
    lock = Disk().lock(tmp_path / ".lock")
    code = "import pathlib, runtime.disk as d; d.Disk().lock(pathlib.Path('.lock'))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=tmp_path, env=environment(),
        capture_output=True, text=True,
    )  # fmt: skip
    lock.release()
    assert f"LockHeldError: .lock is locked by another process, pid {os.getpid()}\n" in done.stderr


@pytest.mark.parametrize("pid", [0, -1])
def test_a_lock_whose_process_is_not_shown_names_no_pid(tmp_path, pid):
    """The holder is on another machine, or in another pid namespace."""
    assert LockHeldError(tmp_path, pid).holder == "another process"


def test_memory_file_is_always_resident(disk):
    file = disk.memfd("chunk")
    disk.write_at(file, 0, bytes(10_000))
    assert disk.is_resident(file, 0, 10_000)


def test_freshly_written_file_is_resident_by_both_probes(disk, tmp_path):
    file = disk.open_append(tmp_path / "a")
    disk.append(file, bytes(100_000))
    assert disk.is_resident(file, 5, 90_000)
    assert disk.is_resident(file, 0, 0)
    assert disk._probe_pages(file, 0, 100_000)
    assert disk._probe_pages(file, 99_000, 500_000)


def test_directory_goes_with_everything_in_it(disk, tmp_path):
    disk.make_dirs(tmp_path / "a" / "b")
    disk.atomic_write(tmp_path / "a" / "b" / "f", b"x", durable=False)
    disk.remove_tree(tmp_path / "a")
    disk.remove_tree(tmp_path / "a")
    assert not disk.exists(tmp_path / "a")


def test_faulty_disk_fails_what_it_was_told_and_heals(tmp_path):
    disk = FaultyDisk()
    disk.fail(["append"], path_part="b", error=errno.EIO, after=1)
    one, other = disk.open_append(tmp_path / "a"), disk.open_append(tmp_path / "b")
    disk.append(one, b"1234")
    disk.append(other, b"1234")
    with pytest.raises(OSError, match="Input/output error"):
        disk.append(other, b"5678")
    assert disk.read_at(other, 0, 99) == b"123456"  # half of it got there
    disk.append(one, b"5678")
    disk.heal()
    disk.append(other, b"9")


def test_file_limit_is_raised_as_far_as_it_may():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(64, min(soft, hard) // 2), hard))
    try:
        assert raise_file_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_error_of_a_half_done_step_has_the_disk_error_as_its_cause() -> None:
    said = OSError(errno.ENOMEM, "Cannot allocate memory", "/data/00.log")
    made = half_done(said, "a truncation ended before its end")
    assert made.__cause__ is said
    assert "/data/00.log" in str(made)
    assert not is_exhausted(made)


def test_the_end_is_told_once_when_the_last_slice_is_gone() -> None:
    disk, told = Disk(), list[str]()
    file = disk.memfd("chunk")
    disk.write_at(file, 0, b"0123456789")
    view = Mapping.of(file, 8, lambda: told.append("ended"))
    assert file.fd == -1, "the mapping alone keeps the memory"
    part = view[2:5]
    del view
    assert (bytes(part), told) == (b"234", [])
    inner = part[1:]
    del part
    assert (bytes(inner), told) == (b"34", [])
    del inner
    assert told == ["ended"]


def test_a_mapping_cannot_be_written() -> None:
    disk = Disk()
    file = disk.memfd("chunk")
    disk.write_at(file, 0, b"0123")
    assert Mapping.of(file, 4, lambda: None).readonly
