from collections.abc import Iterator
from pathlib import Path

import pytest

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.testing import FaultyStorage, RemoteStorageManagerContract


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


class TestFaultyStorageWithoutFaults(RemoteStorageManagerContract):
    @pytest.fixture
    def manager(self, tmp_path: Path) -> Iterator[RemoteStorageManager]:
        manager = FaultyStorage(configured(tmp_path))
        yield manager
        manager.close()
