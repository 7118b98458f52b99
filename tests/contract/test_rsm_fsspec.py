import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.testing import FlakyStore, RemoteStorageManagerContract
from tests.support.stores.few_promises import AFewPromises
from tests.support.stores.flaky import flaky_fsspec, flaky_s3
from tests.support.stores.fsspec_plugin import configured, through_s3fs

if TYPE_CHECKING:
    from tests.support.stores.s3 import S3Endpoint

pytestmark = pytest.mark.integration

SECRET = "do-not-show-this"


class FsspecContract(RemoteStorageManagerContract):
    wrong_settings = (
        {},
        {"url": "no-protocol"},
        {"url": "s3://"},
        {"url": "file:///"},
        {"url": "nosuchprotocol://x"},
        {"url": "memory://x", "atomic.put": "perhaps"},
        {"url": "file:///x/y", "atomic.put": "direct"},
        {"url": "memory://x", "request.timeout.ms": "0"},
    )


class TestMemory(FsspecContract):
    @pytest.fixture
    def manager(self, tmp_path: Path) -> Iterator[RemoteStorageManager]:
        manager = configured(f"memory:/{tmp_path}")
        yield manager
        manager.close()

    @pytest.fixture
    def flaky_store(self, tmp_path: Path) -> Iterator[FlakyStore]:
        manager = configured(f"memory:/{tmp_path}")
        yield flaky_fsspec(manager, lambda: ConnectionResetError("flaky"))
        manager.close()


class TestFile(FsspecContract):
    @pytest.fixture
    def manager(self, tmp_path: Path) -> Iterator[RemoteStorageManager]:
        manager = configured(f"file://{tmp_path}/remote")
        yield manager
        manager.close()

    @pytest.fixture
    def flaky_store(self, tmp_path: Path) -> Iterator[FlakyStore]:
        manager = configured(f"file://{tmp_path}/remote")
        yield flaky_fsspec(manager, lambda: OSError(errno.ESTALE, "flaky"))
        manager.close()


class ThroughS3fs:
    @pytest.fixture
    def manager(self, s3: "S3Endpoint") -> Iterator[RemoteStorageManager]:
        manager = through_s3fs(s3.url, s3.new_bucket())
        yield manager
        manager.close()


class TestAFewThroughS3fs(ThroughS3fs, AFewPromises):
    pass


@pytest.mark.long(seconds=1)
class TestS3ThroughS3fs(ThroughS3fs, FsspecContract):
    @pytest.fixture
    def unreachable_manager(self) -> Iterator[RemoteStorageManager]:
        with socket.create_server(("127.0.0.1", 0)) as nobody_accepts:
            port = nobody_accepts.getsockname()[1]
            timeout = {"request.timeout.ms": "300"}
            manager = through_s3fs(f"http://127.0.0.1:{port}", "bucket", **timeout)
            yield manager
            manager.close()

    @pytest.fixture
    def flaky_store(self, s3: "S3Endpoint") -> Iterator[FlakyStore]:
        soon = {"request.timeout.ms": "10000"}  # s3fs repeats for longer

        with flaky_s3(s3, lambda url, bucket: through_s3fs(url, bucket, **soon)) as store:
            yield store
