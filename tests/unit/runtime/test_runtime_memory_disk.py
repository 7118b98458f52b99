"""The disk in memory: what a process sees, what a power cut leaves, and how it fails."""

import errno
from pathlib import Path

import pytest

from runtime.disk import Disk
from tests.support.sim.dice import SeededDice
from tests.support.sim.memory_disk import MemoryDisk, ProcessEnded
from tests.support.sim.memory_machine import MemoryMachine, MemoryNode

ROOT = Path("/data")
FILE = ROOT / "file"


def machine_with(content: bytes = b"", *, durable: bool = True) -> tuple[MemoryMachine, MemoryDisk]:
    machine = MemoryMachine()
    disk = MemoryDisk(machine)
    disk.make_dirs(ROOT)
    disk.append(disk.open_append(FILE), content)
    if durable:
        disk.fsync_path(FILE)
        disk.fsync_path(ROOT)
        disk.fsync_path(ROOT.parent)
    return machine, disk


def test_it_has_every_call_of_a_disk_that_touches_files() -> None:
    calls = {
        name
        for name, one in vars(Disk).items()
        if callable(one)
        and not name.startswith("_")
        and name not in ("memfd", "read_file", "send_file")
    }
    own = {name for name in calls if getattr(MemoryDisk, name) is not getattr(Disk, name)}
    assert calls - own == {"atomic_write"}  # made of others


def test_a_process_sees_what_it_wrote() -> None:
    _, disk = machine_with(b"one")
    file = disk.open_write(FILE)
    disk.write_at(file, 5, b"two")
    assert disk.read_file(FILE) == b"one\0\0two"
    disk.truncate(file, 4)
    assert (disk.size(FILE), file.size()) == (4, 4)
    disk.atomic_write(FILE, b"anew")
    assert disk.read_file(FILE) == b"anew"
    assert disk.read_at(file, 0, 10) == b"one\0", "who holds it open reads on"
    assert disk.list_dir(ROOT) == ["file"]
    disk.unlink(FILE)
    disk.unlink(FILE)
    with pytest.raises(FileNotFoundError):
        disk.open_read(FILE)


def test_a_cut_forgets_bytes_and_names_that_were_not_fsynced() -> None:
    left: set[bytes | None] = set()
    for seed in range(60):
        machine, disk = machine_with(b"safe")
        disk.append(disk.open_append(FILE), b"+not")
        disk.append(disk.open_append(ROOT / "new"), b"x")
        disk.fsync_path(ROOT / "new")
        machine.cut(SeededDice(seed))
        after = MemoryDisk(machine)
        assert after.read_file(FILE).startswith(b"safe")
        left.add(after.read_file(FILE))
        left.add(after.read_file(ROOT / "new") if after.exists(ROOT / "new") else None)
    assert {b"safe", b"safe+not", b"x", None} <= left


def test_what_was_fsynced_with_its_name_survives_every_cut() -> None:
    for seed in range(30):
        machine, disk = machine_with(b"old")
        disk.atomic_write(FILE, b"new")
        machine.cut(SeededDice(seed))
        assert MemoryDisk(machine).read_file(FILE) == b"new"


def test_a_process_ends_in_the_change_that_was_named_and_gets_nothing_after_it() -> None:
    machine, disk = machine_with(b"")
    file = disk.open_append(FILE)
    disk.end_after(2)
    disk.append(file, b"1")
    with pytest.raises(ProcessEnded):
        disk.append(file, b"2")
    with pytest.raises(ProcessEnded):
        disk.read_at(file, 0, 1)
    assert MemoryDisk(machine).read_file(FILE) == b"12", "a kill leaves what was written"


def test_an_fsync_in_which_the_process_ends_has_promised_nothing() -> None:
    left = set()
    for seed in range(40):
        machine, disk = machine_with(b"")
        disk.append(disk.open_append(FILE), b"1")
        disk.end_after(1)
        with pytest.raises(ProcessEnded):
            disk.fsync_path(FILE)
        machine.cut(SeededDice(seed))
        left.add(MemoryDisk(machine).read_file(FILE))
    assert {b"", b"1"} <= left


def test_a_full_disk_takes_a_half_and_says_so() -> None:
    machine, disk = machine_with(b"")
    file = disk.open_append(FILE)
    machine.fault = lambda operation, _path: errno.ENOSPC if operation == "append" else 0
    with pytest.raises(OSError, match="No space") as caught:
        disk.append(file, b"123456")
    assert caught.value.errno == errno.ENOSPC
    machine.fault = None
    assert disk.read_file(FILE) == b"123"


def test_it_tells_what_an_operation_costs_before_it_has_its_effect() -> None:
    machine, disk = machine_with(b"")
    machine.cost_us = lambda operation, _path: 700 if operation == "append" else 0
    file, told = disk.open_append(FILE), list[tuple[int, int]]()
    disk.takes = lambda cost_us: told.append((cost_us, file.size()))
    disk.append(file, b"x")
    assert told == [(700, 0)]
    assert file.size() == 1


def test_names_and_bytes_that_come_during_an_fsync_are_not_durable_by_it() -> None:
    machine, disk = machine_with()
    machine.cost_us = lambda _operation, _path: 1
    file, early, late = disk.open_append(FILE), ROOT / "early", ROOT / "late"
    disk.append(file, b"early")
    disk.open_append(early)

    def meanwhile(_cost_us: int) -> None:
        disk.takes = None
        disk.append(file, b"late")
        disk.open_append(late)

    for fsync in (lambda: disk.fsync(file), lambda: disk.fsync_path(ROOT)):
        disk.takes = meanwhile
        fsync()
    node = machine.durable(FILE)
    assert isinstance(node, MemoryNode)
    assert node.durable == b"early"
    assert machine.durable(early) is not None
    assert machine.durable(late) is not None, "it was there when the second one began"

    def remove(_cost_us: int) -> None:
        disk.takes = None
        disk.unlink(early)

    disk.takes = remove
    disk.fsync_path(ROOT)
    assert machine.durable(early) is not None
