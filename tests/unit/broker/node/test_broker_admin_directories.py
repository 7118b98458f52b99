"""Log directories are checked before anything is written, and every clash names both sides."""

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from broker.node.directories import Directories, DirectoryError, adopt, open_directories
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    dump_meta_properties,
    parse_meta_properties,
)
from local_log.checked_files import CheckedFiles
from runtime.disk import Disk, Lock, LockHeldError
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.power_cut_disk import PowerCutDisk, PowerCutError
from tests.support.sim.rng import SeededRng

CLUSTER = "AAAAAAAAAAAAAAAAAAAAQQ"
OTHER = "BBBBBBBBBBBBBBBBBBBBBQ"


def formatted(path: Path, id: int, *, node: int = 1, cluster: str = CLUSTER) -> Path:
    path.mkdir()
    meta = MetaProperties(cluster, node, bytes([id]) * 16)
    (path / META_PROPERTIES).write_bytes(dump_meta_properties(meta))
    return path


def opened(*paths: Path, node_id: int = 1) -> Directories:
    return open_directories(paths, metadata_path=paths[0], node_id=node_id, disk=Disk())


def test_formatted_directories_open_with_their_ids(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "a", 1), formatted(tmp_path / "b", 2)
    directories = opened(first, second)
    assert directories.cluster_id == CLUSTER
    assert directories.ids == {first: b"\1" * 16, second: b"\2" * 16}
    directories.release()


def test_an_unformatted_directory_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match=rf"{tmp_path}/none is not formatted"):
        opened(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_another_node_is_refused_with_both_ids(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match=r"node\.id=7 .*meta\.properties.*node\.id=1"):
        opened(formatted(tmp_path / "a", 1), node_id=7)


def test_two_clusters_are_refused_with_both_ids(tmp_path: Path) -> None:
    first = formatted(tmp_path / "a", 1)
    second = formatted(tmp_path / "b", 2, cluster=OTHER)
    with pytest.raises(DirectoryError, match=f"{CLUSTER}.*{OTHER}"):
        opened(first, second)


def test_a_copied_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match=r"same directory\.id"):
        opened(formatted(tmp_path / "a", 1), formatted(tmp_path / "b", 1))


def test_a_locked_directory_is_refused_and_free_again_after_release(tmp_path: Path) -> None:
    path = formatted(tmp_path / "a", 1)
    first = opened(path)
    with pytest.raises(DirectoryError, match=f"{path} is locked"):
        opened(path)
    first.release()
    opened(path)


def test_a_refusal_of_a_locked_directory_names_the_process(tmp_path: Path) -> None:
    class Held(Disk):
        def lock(self, path: Path) -> Lock:
            raise LockHeldError(path, 77)

    path = formatted(tmp_path / "a", 1)
    with pytest.raises(DirectoryError, match=f"{path} is locked by another process, pid 77 "):
        open_directories([path], metadata_path=path, node_id=1, disk=Held())


def test_a_refused_start_leaves_no_lock_behind(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "a", 1), formatted(tmp_path / "b", 2, cluster=OTHER)
    with pytest.raises(DirectoryError):
        opened(first, second)
    opened(first)


def test_an_empty_directory_beside_formatted_ones_is_a_new_disk(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "a", 1), tmp_path / "b"
    directories = opened(first, second)
    adopted(directories, known={b"\1" * 16})
    assert set(directories.ids) == {first, second}
    meta = parse_meta_properties((second / META_PROPERTIES).read_bytes())
    assert (meta.cluster_id, meta.node_id) == (CLUSTER, 1)
    assert meta.directory_id not in (None, b"\1" * 16)


def test_a_kill_while_a_new_disk_is_adopted_leaves_a_new_disk(tmp_path: Path) -> None:
    for cut in range(1, 20):
        root = tmp_path / str(cut)
        root.mkdir()
        first, second = formatted(root / "a", 1), root / "b"
        second.mkdir()
        opened(first).release()
        disk = PowerCutDisk(root, SeededRng(cut), operations=cut)
        is_done = False
        directories = open_directories([first, second], metadata_path=first, node_id=1, disk=disk)
        with suppress(PowerCutError):
            adopt(directories, set(), node_id=1, disk=disk, rng=SeededRng(1))
            is_done = True
        directories.release()
        disk.cut()
        directories = opened(first, second)
        assert directories.offline == {}
        adopted(directories, known=set())
        assert set(directories.ids) == {first, second}
        directories.release()
        if is_done:
            return
    raise AssertionError("never done")


def adopted(directories: Directories, known: set[bytes]) -> None:
    adopt(directories, known, node_id=1, disk=Disk(), rng=SeededRng(1))


@pytest.mark.parametrize("is_there", [True, False])
def test_while_a_directory_is_missing_an_empty_one_is_no_new_disk(
    tmp_path: Path, is_there: bool
) -> None:
    first, second = formatted(tmp_path / "a", 1), tmp_path / "b"
    if is_there:
        second.mkdir()
    directories = opened(first, second)
    adopted(directories, known={b"\1" * 16, b"\2" * 16})
    assert set(directories.ids) == {first}
    assert "AgICAgICAgICAgICAgICAg is missing" in str(directories.offline[second])
    assert not (second / META_PROPERTIES).exists()


def test_a_directory_with_somebody_elses_files_is_left_alone(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "a", 1), tmp_path / "b"
    second.mkdir()
    (second / "thesis.txt").write_text("all of it")
    directories = opened(first, second)
    assert set(directories.ids) == {first}
    assert "is not empty" in str(directories.offline[second])
    adopted(directories, known=set())
    assert [path.name for path in second.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["", "version=1\n", "version=x\ncluster.id=a\nnode.id=1\n", "\0"])
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = formatted(tmp_path / "a", 1)
    (path / META_PROPERTIES).write_text(text)
    with pytest.raises(DirectoryError, match=str(path / META_PROPERTIES)):
        opened(path)


@pytest.mark.parametrize("text", ["", "version=1\n", "version=x\ncluster.id=a\nnode.id=1\n", "\0"])
def test_a_damaged_file_of_another_directory_takes_that_one_offline(
    tmp_path: Path, text: str
) -> None:
    first, second = formatted(tmp_path / "a", 1), formatted(tmp_path / "b", 2)
    (second / META_PROPERTIES).write_text(text)
    directories = opened(first, second)
    assert set(directories.ids) == {first}
    assert META_PROPERTIES in str(directories.offline[second])


def test_a_file_in_the_place_of_a_directory_takes_it_offline(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "a", 1), tmp_path / "b"
    second.write_text("no directory")
    directories = opened(first, second)
    assert "is no directory" in str(directories.offline[second])
    adopted(directories, known=set())
    assert second.read_text() == "no directory"


@pytest.mark.parametrize("operation", ["open_read", "read_at"])
def test_a_directory_that_cannot_be_read_is_offline_and_not_locked(
    tmp_path: Path, operation: str
) -> None:
    first, second = formatted(tmp_path / "a", 1), formatted(tmp_path / "b", 2)
    disk = FaultyDisk()
    disk.fail([operation], path_part=str(second), error=errno.EIO)
    directories = open_directories([first, second], metadata_path=first, node_id=1, disk=disk)
    assert "Input/output error" in str(directories.offline[second])
    opened(second)


@pytest.mark.parametrize("key", [b"cluster.id", b"node.id"])
def test_a_flipped_identity_is_damage_where_the_sidecar_says_so(tmp_path: Path, key: bytes) -> None:
    first, second = formatted(tmp_path / "a", 1), formatted(tmp_path / "b", 2)
    CheckedFiles(Disk(), second).keep(META_PROPERTIES)
    file = second / META_PROPERTIES
    good = file.read_bytes()
    at = good.index(key) + len(key) + 1
    file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    directories = opened(first, second)
    assert "is damaged" in str(directories.offline[second])
