"""The plugin for S3 keeps all promises on a real endpoint, as it comes and with everything set.

In `make test` a few, with everything set; `tests/unit/rsm_plugins/s3` asks more of a played store.
"""

import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import pytest

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.s3.plugin import S3RemoteStorageManager
from rsm_plugins.testing import FlakyStore, RemoteStorageManagerContract
from tests.support.stores.few_promises import AFewPromises
from tests.support.stores.flaky import flaky_s3

if TYPE_CHECKING:
    from tests.support.stores.s3 import S3Endpoint

EVERYTHING = {
    "prefix": "some/where",
    "prefix_entropy_chars": "4",
    "sse": "AES256",
    "storage_class": "STANDARD_IA",
    "checksum": "none",
    "path_style_access": "true",
    "upload_part_size_bytes": str(5 << 20),
    "upload_concurrency": "1",
    "max_connections": "2",
}


def configured(url: str, bucket: str, **more: str) -> S3RemoteStorageManager:
    """A plugin on a bucket; `more` are settings with `_` for `.`."""
    settings = {"endpoint.url": url, "bucket": bucket, "region": "us-east-1"}
    settings |= {name.replace("_", "."): value for name, value in more.items()}
    manager = S3RemoteStorageManager()
    manager.configure({**settings, "node.id": "1", "cluster.id": "c"})
    return manager


def closed(manager: RemoteStorageManager) -> Iterator[RemoteStorageManager]:
    yield manager
    manager.close()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


class OnLocalStack(RemoteStorageManagerContract):
    """All promises; a subclass gives `more` settings."""

    more: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture
    def manager(self, s3: "S3Endpoint") -> Iterator[RemoteStorageManager]:
        yield from closed(configured(s3.url, s3.new_bucket(), **self.more))

    @pytest.fixture
    def impatient(self, s3: "S3Endpoint") -> Iterator[RemoteStorageManager]:
        short = {"read_timeout_ms": "2000", "api_call_attempts": "1"}
        yield from closed(configured(s3.url, s3.new_bucket(), **self.more, **short))

    def test_one_segment_copied_read_and_deleted_at_once(
        self, impatient: RemoteStorageManager
    ) -> None:
        # A GET of LocalStack that meets a DELETE may keep its lock for ever; a later PUT of that
        # very key then hangs. Only this promise writes a key again after its deletion.
        super().test_one_segment_copied_read_and_deleted_at_once(impatient)


@pytest.mark.integration
class TestS3(OnLocalStack):
    @pytest.fixture
    def unreachable_manager(self) -> Iterator[RemoteStorageManager]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
        yield from closed(configured(url, "nowhere", api_call_attempts="2"))

    @pytest.fixture
    def flaky_store(self, s3: "S3Endpoint") -> Iterator[FlakyStore]:
        with flaky_s3(s3, configured) as store:
            yield store


class TestAFewWithEverythingSet(AFewPromises):
    @pytest.fixture
    def manager(self, s3: "S3Endpoint") -> Iterator[RemoteStorageManager]:
        yield from closed(configured(s3.url, s3.new_bucket(), **EVERYTHING))


@pytest.mark.long(seconds=1)
class TestS3WithEverythingSet(OnLocalStack):
    more = EVERYTHING
