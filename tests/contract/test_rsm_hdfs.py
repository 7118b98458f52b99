from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.hdfs import HdfsRemoteStorageManager
from rsm_plugins.testing import RemoteStorageManagerContract

if TYPE_CHECKING:
    from harness_hdfs import Hdfs

pytestmark = pytest.mark.jvm


def configured(url: str, **settings: str) -> HdfsRemoteStorageManager:
    manager = HdfsRemoteStorageManager()
    manager.configure({"url": url, "node.id": "1", "cluster.id": "c", **settings})
    return manager


class HdfsContract(RemoteStorageManagerContract):
    wrong_settings = (
        {},
        {"url": "hdfs:///no-host"},
        {"url": "s3://bucket"},
        {"url": "hdfs://h:1/x", "driver": "webhdfs"},
        {"url": "webhdfs://h:1/x", "driver": "hdfs-native"},
        {"url": "hdfs://h:1/x", "replication": "-1"},
    )


class TestHdfsNative(HdfsContract):
    @pytest.fixture
    def manager(self, hdfs: "Hdfs") -> Iterator[RemoteStorageManager]:
        manager = configured(hdfs.rpc + hdfs.new_root())
        yield manager
        manager.close()


class TestWebHdfs(HdfsContract):
    @pytest.fixture
    def manager(self, hdfs: "Hdfs") -> Iterator[RemoteStorageManager]:
        manager = configured(hdfs.web + hdfs.new_root(), user="tester")
        yield manager
        manager.close()
