import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.hdfs.plugin import HdfsRemoteStorageManager
from rsm_plugins.testing import FlakyStore, RemoteStorageManagerContract
from tests.support.stores.few_promises import AFewPromises
from tests.support.stores.flaky import flaky_fsspec

if TYPE_CHECKING:
    from tests.support.stores.hdfs import Hdfs

pytestmark = [
    pytest.mark.integration,
    pytest.mark.lasts(seconds=100),
    pytest.mark.jvm,
    pytest.mark.slow,
]  # half a second a file, see rsm_plugins/hdfs/plugin.py


def configured(url: str, **settings: str) -> HdfsRemoteStorageManager:
    manager = HdfsRemoteStorageManager()
    manager.configure({"url": url, "node.id": "1", "cluster.id": "c", **settings})
    return manager


class HdfsContract(RemoteStorageManagerContract):
    scheme = ""
    every_nth_request = 5
    wrong_settings = (
        {},
        {"url": "hdfs:///no-host"},
        {"url": "hdfs://no-directory:1/"},
        {"url": "s3://bucket"},
        {"url": "hdfs://h:1/x", "driver": "webhdfs"},
        {"url": "webhdfs://h:1/x", "driver": "hdfs-native"},
        {"url": "hdfs://h:1/x", "replication": "-1"},
    )

    @pytest.fixture
    def unreachable_manager(self) -> Iterator[RemoteStorageManager]:
        with socket.create_server(("127.0.0.1", 0)) as nobody_accepts:
            url = f"{self.scheme}://127.0.0.1:{nobody_accepts.getsockname()[1]}/x"
            manager = configured(url, **{"request.timeout.ms": "300"})
            yield manager
            manager.close()


class TestHdfsNative(HdfsContract):
    scheme = "hdfs"

    @pytest.fixture
    def flaky_store(self, hdfs: "Hdfs") -> Iterator[FlakyStore]:
        manager = configured(hdfs.rpc + hdfs.new_root())
        yield flaky_fsspec(manager, lambda: RuntimeError('RPCError("connection reset", "flaky")'))
        manager.close()

    @pytest.fixture
    def manager(self, hdfs: "Hdfs") -> Iterator[RemoteStorageManager]:
        manager = configured(hdfs.rpc + hdfs.new_root())
        yield manager
        manager.close()


class ThroughWebHdfs:
    @pytest.fixture
    def manager(self, hdfs: "Hdfs") -> Iterator[RemoteStorageManager]:
        manager = configured(hdfs.web + hdfs.new_root(), user="tester")
        yield manager
        manager.close()


class TestAFewThroughWebHdfs(ThroughWebHdfs, AFewPromises):
    pass


@pytest.mark.long(seconds=1)
class TestWebHdfs(ThroughWebHdfs, HdfsContract):
    scheme = "webhdfs"

    @pytest.fixture
    def flaky_store(self, hdfs: "Hdfs") -> Iterator[FlakyStore]:
        manager = configured(hdfs.web + hdfs.new_root(), user="tester")
        yield flaky_fsspec(manager, lambda: ConnectionResetError("flaky"))
        manager.close()
