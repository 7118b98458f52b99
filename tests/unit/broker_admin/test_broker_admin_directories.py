"""Log directories are checked before anything is written, and every clash names both sides."""

from pathlib import Path

import pytest

from broker.directories import DirectoryError, open_directories
from kafka_protocol.files.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    dump_meta_properties,
    parse_meta_properties,
)
from runtime.dice import SeededDice
from runtime.disk import Disk

CLUSTER = "AAAAAAAAAAAAAAAAAAAAQQ"
OTHER = "BBBBBBBBBBBBBBBBBBBBBQ"


def formatted(path: Path, id: int, *, node: int = 1, cluster: str = CLUSTER) -> Path:
    path.mkdir()
    meta = MetaProperties(cluster, node, bytes([id]) * 16)
    (path / META_PROPERTIES).write_bytes(dump_meta_properties(meta))
    return path


def opened(*paths: Path, node_id: int = 1) -> object:
    return open_directories(
        paths, metadata_path=paths[0], node_id=node_id, disk=Disk(), dice=SeededDice(1)
    )


def test_formatted_directories_open_with_their_ids(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "a", 1), formatted(tmp_path / "b", 2)
    directories = open_directories(
        [first, second], metadata_path=first, node_id=1, disk=Disk(), dice=SeededDice(1)
    )
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
    first = open_directories([path], metadata_path=path, node_id=1, disk=Disk(), dice=SeededDice(1))
    with pytest.raises(DirectoryError, match=f"{path} is locked"):
        opened(path)
    first.release()
    opened(path)


def test_a_refused_start_leaves_no_lock_behind(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "a", 1), formatted(tmp_path / "b", 2, cluster=OTHER)
    with pytest.raises(DirectoryError):
        opened(first, second)
    opened(first)


def test_an_empty_directory_beside_formatted_ones_is_a_new_disk(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "a", 1), tmp_path / "b"
    opened(first, second)
    meta = parse_meta_properties((second / META_PROPERTIES).read_bytes())
    assert (meta.cluster_id, meta.node_id) == (CLUSTER, 1)
    assert meta.directory_id not in (None, b"\1" * 16)


def test_a_directory_with_somebody_elses_files_is_refused(tmp_path: Path) -> None:
    first, second = formatted(tmp_path / "a", 1), tmp_path / "b"
    second.mkdir()
    (second / "thesis.txt").write_text("all of it")
    with pytest.raises(DirectoryError, match=f"{second} is not empty"):
        opened(first, second)
    assert [path.name for path in second.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["", "version=1\n", "version=x\ncluster.id=a\nnode.id=1\n", "\0"])
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = formatted(tmp_path / "a", 1)
    (path / META_PROPERTIES).write_text(text)
    with pytest.raises(DirectoryError, match=str(path / META_PROPERTIES)):
        opened(path)
