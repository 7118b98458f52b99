"""The sidecar of checksums: what it finds damaged, and what it must take as it is."""

import contextlib
from pathlib import Path

import pytest

from kafka_protocol.errors import CorruptFileError
from local_log.checked_files import (
    SIDECAR,
    CheckedFiles,
    Owner,
    Sidecar,
    dump_sidecar,
    parse_sidecar,
)
from runtime.disk import Disk
from tests.support.sim.faulty_disk import FaultyDisk

NAME = "log-start-offset-checkpoint"


def reopened(path: Path, **kwargs) -> CheckedFiles:
    return CheckedFiles(Disk(), path, **kwargs)


def test_every_flipped_bit_of_a_file_is_found(tmp_path):
    reopened(tmp_path).write(NAME, b"0\n1\norders 0 100\n")
    good = (tmp_path / NAME).read_bytes()
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        (tmp_path / NAME).write_bytes(bad)
        with pytest.raises(CorruptFileError, match=NAME):
            reopened(tmp_path).read(NAME)


def test_an_old_version_of_a_file_is_found(tmp_path):
    files = reopened(tmp_path)
    files.write(NAME, b"old")
    files.write(NAME, b"new")
    files.write(NAME, b"newer")
    (tmp_path / NAME).write_bytes(b"old")
    with pytest.raises(CorruptFileError):
        reopened(tmp_path).read(NAME)


@pytest.mark.parametrize("damage", ["lost", "empty", "cut", "flipped"])
def test_a_damaged_sidecar_proves_nothing_and_is_made_again(tmp_path, damage):
    reopened(tmp_path).write(NAME, b"one")
    sidecar = tmp_path / SIDECAR
    good = sidecar.read_bytes()
    for at in range(len(good)) if damage == "flipped" else [len(good) // 2]:
        match damage:
            case "lost":
                sidecar.unlink()
            case "empty":
                sidecar.write_bytes(b"")
            case "cut":
                sidecar.write_bytes(good[:at])
            case _:
                sidecar.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        files = reopened(tmp_path)
        assert not files.is_kept
        assert files.read(NAME) == b"one"
    files.write(NAME, b"two")
    (tmp_path / NAME).write_bytes(b"other")
    with pytest.raises(CorruptFileError):
        reopened(tmp_path).read(NAME)


def test_a_stop_at_each_step_of_a_write_leaves_a_readable_file(tmp_path):
    operations = ("write_at", "fsync", "rename")
    for durable in (True, False):
        for operation in operations:
            for after in range(3):
                path = tmp_path / f"{operation}-{after}-{durable}"
                path.mkdir()
                reopened(path).write(NAME, b"before")
                disk = FaultyDisk()
                files = CheckedFiles(disk, path)
                disk.fail([operation], after=after)
                with contextlib.suppress(OSError):
                    files.write(NAME, b"after", durable=durable)
                assert reopened(path).read(NAME) in (b"before", b"after")


def test_a_file_without_a_sidecar_is_read_and_survives_a_failed_write(tmp_path):
    (tmp_path / NAME).write_bytes(b"from Kafka")
    disk = FaultyDisk()
    files = CheckedFiles(disk, tmp_path)
    assert files.read(NAME) == b"from Kafka"
    disk.fail(["rename"], path_part=NAME)
    with pytest.raises(OSError, match="space"):
        files.write(NAME, b"ours")
    assert reopened(tmp_path).read(NAME) == b"from Kafka"


def test_unsynced_versions_stay_known_until_one_is_fsynced(tmp_path):
    files = reopened(tmp_path)
    files.write(NAME, b"0", durable=True)
    for version in (b"1", b"2", b"3"):
        files.write(NAME, version, durable=False)
    for version in (b"0", b"1", b"2", b"3"):  # any of them may come back after a power cut
        (tmp_path / NAME).write_bytes(version)
        assert reopened(tmp_path).read(NAME) == version


def test_a_durable_write_syncs_its_sidecar_even_if_unchanged(tmp_path):
    synced = []

    class Recording(Disk):
        def atomic_write(self, path, data, *, durable=True):
            synced.append((path.name, durable))
            super().atomic_write(path, data, durable=durable)

    files = CheckedFiles(Recording(), tmp_path)
    files.write(NAME, b"same", durable=False)
    files.write(NAME, b"same", durable=True)
    assert synced[-2:] == [(SIDECAR, True), (NAME, True)]


def test_what_somebody_without_a_sidecar_wrote_is_not_compared(tmp_path):
    reopened(tmp_path).write(NAME, b"ours")
    (tmp_path / NAME).write_bytes(b"theirs")
    files = reopened(tmp_path, compare=False)
    assert files.read(NAME) == b"theirs"
    files.keep(NAME)
    assert reopened(tmp_path).read(NAME) == b"theirs"


@pytest.mark.parametrize("damaged", [b"on3", b""])
def test_a_file_that_the_sidecar_knows_is_not_learned_again(tmp_path, damaged):
    """Otherwise a start would make a damaged file the right one."""
    reopened(tmp_path).write(NAME, b"one")
    (tmp_path / NAME).write_bytes(damaged)
    files = reopened(tmp_path)
    files.keep(NAME, "a file that is not there")
    for again in (files, reopened(tmp_path)):
        with pytest.raises(CorruptFileError):
            again.read(NAME)
    (tmp_path / NAME).write_bytes(b"one")
    assert reopened(tmp_path).read(NAME) == b"one"


def test_the_owner_is_kept_over_writes(tmp_path):
    owner = Owner(bytes(range(16)), 7)
    reopened(tmp_path, owner=owner).write(NAME, b"x")
    files = reopened(tmp_path)
    files.write(NAME, b"y")
    assert reopened(tmp_path).owner == owner


def test_the_text_form_is_stable():
    sidecar = Sidecar(Owner(bytes(16), 3), {"b": (1, 2), "a": (0xFFFFFFFF,)})
    data = dump_sidecar(sidecar)
    assert data.splitlines()[:-1] == [
        b"tidemark-checksums 1",
        b"owner AAAAAAAAAAAAAAAAAAAAAA 3",
        b"file a ffffffff",
        b"file b 00000001 00000002",
    ]
    assert parse_sidecar(data) == sidecar
