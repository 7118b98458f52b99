"""What the directory plugin does on disk, beyond the contract that all plugins share."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from pipeline.store import LOCAL_FS, open_store
from pipeline.values import StoreAddress
from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.layout.claim_object import claim_key
from rsm_plugins.layout.objects import parse_manifest
from rsm_plugins.local_fs import DirectoryStore, LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType
from rsm_plugins.testing import LOG_BYTES, copy, read, segment, segment_data


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "remote"


@pytest.fixture
def manager(root: Path) -> LocalFsRemoteStorageManager:
    manager = LocalFsRemoteStorageManager()
    manager.configure({"dir": str(root)})
    return manager


def files(root: Path) -> dict[str, Path]:
    return {path.suffix: path for path in root.rglob("*") if path.is_file()}


def test_a_segment_is_three_files_and_nothing_else(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copy(manager, segment())
    assert set(files(root)) == {".log", ".indexes", ".manifest"}
    assert not list(root.rglob("*.copying"))
    assert files(root)[".log"].read_bytes() == LOG_BYTES


def test_the_manifest_names_size_and_checksum_of_the_others(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copy(manager, segment())
    found = files(root)
    manifest = parse_manifest(found[".manifest"].read_bytes())
    assert manifest.log.size_bytes == len(LOG_BYTES)
    assert manifest.log.crc32c == crc32c(LOG_BYTES)
    assert manifest.indexes.crc32c == crc32c(found[".indexes"].read_bytes())
    assert manifest.metadata.leader_epochs == segment().leader_epochs


def test_a_segment_without_manifest_was_never_complete(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copied = copy(manager, segment())
    files(root)[".manifest"].unlink()
    with pytest.raises(RemoteResourceNotFoundError):
        manager.fetch_log_segment(copied, 0)
    with pytest.raises(RemoteResourceNotFoundError):
        manager.fetch_index(copied, IndexType.OFFSET)


def test_what_a_killed_copy_left_goes_with_the_segment(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copy(manager, segment())
    left = files(root)[".manifest"].with_suffix(".log.copying")
    left.mkdir()
    (left / "tmpabc").write_bytes(b"half")
    manager.delete_log_segment_data(segment())
    assert list(root.iterdir()) == []


def test_empty_folders_go_and_full_ones_stay(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copy(manager, segment(1))
    copy(manager, segment(2))
    manager.delete_log_segment_data(segment(1))
    assert len(list(root.rglob("*.log"))) == 1
    manager.delete_log_segment_data(segment(2))
    assert list(root.iterdir()) == []


def test_one_flipped_bit_in_an_index_is_noticed(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copied = copy(manager, segment())
    path = files(root)[".indexes"]
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(RemoteObjectDamagedError):
        manager.fetch_index(copied, IndexType.LEADER_EPOCH)
    path.write_bytes(damaged[:20])
    with pytest.raises(RemoteObjectDamagedError):
        manager.fetch_index(copied, IndexType.OFFSET)


def test_a_missing_object_is_told_apart_from_a_failing_store(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copied = copy(manager, segment())
    files(root)[".log"].unlink()
    with pytest.raises(RemoteResourceNotFoundError):
        manager.fetch_log_segment(copied, 0)


def test_a_cut_object_gives_what_there_is(manager: LocalFsRemoteStorageManager, root: Path) -> None:
    copied = copy(manager, segment())
    files(root)[".log"].write_bytes(LOG_BYTES[:100])
    assert read(manager.fetch_log_segment(copied, 90, 200)) == LOG_BYTES[90:100]
    with pytest.raises(RemoteObjectDamagedError):
        manager.fetch_log_segment(copied, 150, 200)


def test_a_flipped_bit_in_a_log_read_whole_is_noticed(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copied = copy(manager, segment())
    damaged = bytearray(LOG_BYTES)
    damaged[7] ^= 1
    files(root)[".log"].write_bytes(damaged)
    with pytest.raises(RemoteObjectDamagedError), manager.fetch_log_segment(copied, 0) as stream:
        stream.read()


def test_an_open_stream_outlives_the_deletion(manager: LocalFsRemoteStorageManager) -> None:
    copied = copy(manager, segment())
    stream = manager.fetch_log_segment(copied, 0)
    manager.delete_log_segment_data(copied)
    assert read(stream) == LOG_BYTES


def test_foreign_custom_metadata_is_refused_everywhere(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    evil = replace(segment(), custom_metadata=b"../../x")
    with pytest.raises(RemoteStorageError):
        manager.copy_log_segment_data(evil, segment_data())
    with pytest.raises(RemoteStorageError):
        manager.delete_log_segment_data(evil)
    with pytest.raises(RemoteStorageError):
        manager.fetch_index(evil, IndexType.OFFSET)
    assert not root.exists()


def test_a_large_segment_is_copied_in_pieces(manager: LocalFsRemoteStorageManager) -> None:
    body = bytes(range(251)) * 20_000
    copied = copy(manager, segment(size_bytes=len(body)), segment_data(body))
    with manager.fetch_log_segment(copied, 0) as stream:
        assert stream.read() == body
    assert read(manager.fetch_log_segment(copied, 1_048_570, 1_048_580)) == body[1048570:1048581]


def test_a_store_on_a_file_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for value in (str(tmp_path / "file"), str(tmp_path / "file" / "below"), "", " "):
        with pytest.raises(ValueError, match=r"rsm\.config\.dir"):
            LocalFsRemoteStorageManager().configure({"dir": value})


def test_a_store_that_vanished_is_retriable(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copy(manager, segment())
    root.rename(root.with_name("elsewhere"))
    root.write_bytes(b"a file where the mount was")
    with pytest.raises(RetriableRemoteStorageError):
        manager.copy_log_segment_data(segment(), segment_data())


def test_reading_source_files_works_with_real_files(
    manager: LocalFsRemoteStorageManager, tmp_path: Path
) -> None:
    path = tmp_path / "source.log"
    path.write_bytes(LOG_BYTES)
    with path.open("rb") as log, path.open("rb", buffering=0) as raw:
        copied = copy(manager, segment(1), replace(segment_data(), log=log))
        unbuffered = io.BufferedReader(raw)
        copied_raw = copy(manager, segment(2), replace(segment_data(), log=unbuffered))
        unbuffered.detach()
    assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES
    assert read(manager.fetch_log_segment(copied_raw, 0)) == LOG_BYTES


def test_a_root_that_went_is_a_failing_store_and_is_not_made_again(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    copied = copy(manager, segment())
    elsewhere = root.rename(root.with_name("unmounted"))
    with pytest.raises(RetriableRemoteStorageError):
        manager.fetch_index(copied, IndexType.OFFSET)
    with pytest.raises(RetriableRemoteStorageError):
        manager.delete_log_segment_data(copied)
    with pytest.raises(RetriableRemoteStorageError):
        list(manager.list_objects())
    with pytest.raises(RetriableRemoteStorageError):
        manager.copy_log_segment_data(segment(2), segment_data())
    assert not root.exists()
    elsewhere.rename(root)
    assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES


def test_the_root_is_made_by_the_first_write_alone(
    manager: LocalFsRemoteStorageManager, root: Path
) -> None:
    """A tier that knows of a claim writes nothing before it has read it: see the module."""
    assert manager.read_claim("c", 1) is None
    manager.delete_log_segment_data(segment())
    assert list(manager.list_objects()) == []
    assert not root.exists()
    manager.write_claim("c", 1, 7)
    assert manager.read_claim("c", 1) == 7


NOT_MOUNTED = pytest.raises(RetriableRemoteStorageError, match="is the store mounted")


@pytest.mark.parametrize("is_claimed_by", ["read", "write"])
def test_a_bare_mount_point_is_a_failing_store_until_the_claim_is_back(
    manager: LocalFsRemoteStorageManager, root: Path, is_claimed_by: str
) -> None:
    copied = copy(manager, segment())
    manager.write_claim("c", 1, 7)
    if is_claimed_by == "read":
        manager = LocalFsRemoteStorageManager()
        manager.configure({"dir": str(root)})
        assert manager.read_claim("c", 1) == 7
    elsewhere = root.rename(root.with_name("unmounted"))
    root.mkdir()
    with NOT_MOUNTED:
        manager.fetch_log_segment(copied, 0)
    with NOT_MOUNTED:
        manager.delete_log_segment_data(copied)
    with NOT_MOUNTED:
        list(manager.list_objects())
    with NOT_MOUNTED:
        manager.copy_log_segment_data(segment(2), segment_data())
    assert manager.read_claim("c", 1) is None, "the tier is to learn it"
    assert list(root.iterdir()) == []
    root.rmdir()
    elsewhere.rename(root)
    assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES
    copy(manager, segment(2))


def test_a_store_unmounted_during_a_copy_fails_it(root: Path) -> None:
    store = DirectoryStore(root)
    store.put(claim_key("c", 1), io.BytesIO(b"a claim"))

    class Unmounting(io.BytesIO):
        """What is written lies below the bare mount point, which has no claims."""

        def seek(self, *position: int) -> int:
            (root / "claims").rename(root.with_name("unmounted"))
            return super().seek(*position)

    with NOT_MOUNTED:
        store.put("orders/0/1.manifest", Unmounting(b"the last object of a copy"))
    assert (root / "orders/0/1.manifest").exists(), "else something else has failed it"


def test_a_claim_that_was_deleted_is_not_looked_for(
    manager: LocalFsRemoteStorageManager,
) -> None:
    manager.write_claim("c", 1, 7)
    manager.delete_claim("c", 1)
    assert read(manager.fetch_log_segment(copy(manager, segment()), 0)) == LOG_BYTES


def test_every_object_is_fsynced_before_its_name_and_every_name_after(
    manager: LocalFsRemoteStorageManager, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the system calls: write, fsync of the file, rename, fsync of the directory."""
    fsynced: dict[int, int] = {}  # inode -> size
    named: list[Path] = []  # renamed, and not yet durable there
    fsync, rename = os.fsync, os.rename

    def seen_fsync(fd: int) -> None:
        fsync(fd)
        facts = os.fstat(fd)
        fsynced[facts.st_ino] = facts.st_size
        for path in list(named):
            if os.path.samestat(path.parent.stat(), facts):
                named.remove(path)

    def seen_rename(source: str, target: Path) -> None:
        facts = os.stat(source)
        assert fsynced.get(facts.st_ino) == facts.st_size, f"{target.suffix} is not on disk"
        assert named == [], "a name before this one may still be lost"
        rename(source, target)
        named.append(target)
        renamed.append(target.suffix)

    renamed: list[str] = []
    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "rename", seen_rename)
    copy(manager, segment())
    assert sorted(renamed) == [".indexes", ".log", ".manifest"]
    assert named == []


def test_a_reader_needs_no_right_to_write(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir(parents=True)
    may = os.access
    # root, whom tests may run as, has every right
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and may(path, mode))
    with pytest.raises(RemoteStorageError, match="cannot be written"):
        LocalFsRemoteStorageManager().configure({"dir": str(root)})
    LocalFsRemoteStorageManager().configure({"dir": str(root), "check.writable": "false"})
    open_store(StoreAddress(LOCAL_FS, {"dir": str(root)})).close()
