from collections.abc import Iterator
from pathlib import Path

import pytest

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.store_faults import StoreFault, StoreFaultKind, StoreFaults, with_faults
from rsm_plugins.testing import FaultyStorage, FlakyStore, RemoteStorageManagerContract


def configured(root: Path) -> LocalFsRemoteStorageManager:
    manager = LocalFsRemoteStorageManager()
    manager.configure({"dir": str(root / "remote"), "node.id": "1", "cluster.id": "c"})
    return manager


class TestLocalFs(RemoteStorageManagerContract):
    @pytest.fixture
    def manager(self, tmp_path: Path) -> Iterator[RemoteStorageManager]:
        manager = configured(tmp_path)
        yield manager
        manager.close()

    @pytest.fixture
    def flaky_store(self) -> FlakyStore:
        pytest.skip("a directory has no requests: the kernel repeats those of a network's disk")


class TestFaultyStorageWithoutFaults(RemoteStorageManagerContract):
    @pytest.fixture
    def manager(self, tmp_path: Path) -> Iterator[RemoteStorageManager]:
        manager = FaultyStorage(configured(tmp_path))
        yield manager
        manager.close()


class TestStoreFaultsThatHitOthers(RemoteStorageManagerContract):
    @pytest.fixture
    def manager(self, tmp_path: Path) -> Iterator[RemoteStorageManager]:
        faults = StoreFaults()
        faults.set([StoreFault(id=1, kind=StoreFaultKind.REFUSE, topic="of nobody")])
        manager = with_faults(configured(tmp_path), faults)
        yield manager
        manager.close()

    def test_wrong_settings_are_refused(self, manager: RemoteStorageManager) -> None:
        """The contract makes another plugin of the same class; a wrapper needs something inside."""
        with pytest.raises(ValueError, match="dir is missing"):
            with_faults(LocalFsRemoteStorageManager(), StoreFaults()).configure({})
