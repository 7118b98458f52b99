"""The generic plugin beyond the contract: its settings, temporary files, S3's parts."""

import io
import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.fsspec.calls import CallLimits
from rsm_plugins.fsspec.objects import FsspecStore
from rsm_plugins.fsspec.plugin import FsspecRemoteStorageManager
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.testing import BreakingFile, copy, read, segment, segment_data
from tests.support.stores.fsspec_plugin import configured, through_s3fs

if TYPE_CHECKING:
    from tests.support.stores.s3 import S3Endpoint

pytestmark = pytest.mark.integration

BIG = os.urandom(9 << 20)
SECRET = "never/show+this"


def open_uploads(s3: "S3Endpoint", bucket: str) -> list[str]:
    answer = s3.client().list_multipart_uploads(Bucket=bucket)
    return [upload["Key"] for upload in answer.get("Uploads", [])]


@pytest.fixture
def bucket(s3: "S3Endpoint") -> str:
    return s3.new_bucket()


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_a_large_object_is_put_in_parts_and_read_back(s3: "S3Endpoint", bucket: str) -> None:
    manager = through_s3fs(s3.url, bucket)
    copied = copy(manager, segment(size_bytes=len(BIG)), segment_data(BIG))
    assert read(manager.fetch_log_segment(copied, 0)) == BIG
    assert open_uploads(s3, bucket) == []
    assert all(key.startswith("some/prefix/orders-") for key in s3.keys(bucket))
    manager.close()


def test_a_source_that_breaks_leaves_no_object_and_no_parts(s3: "S3Endpoint", bucket: str) -> None:
    manager = through_s3fs(s3.url, bucket)
    data = replace(segment_data(), log=BreakingFile(BIG, after=(8 << 20) + 100))
    with pytest.raises((OSError, RemoteStorageError)):
        manager.copy_log_segment_data(segment(size_bytes=len(BIG)), data)
    assert s3.keys(bucket) == {}
    assert open_uploads(s3, bucket) == []
    manager.close()


def test_a_deletion_ends_uploads_of_dead_copies_and_no_others(
    s3: "S3Endpoint", bucket: str
) -> None:
    manager = through_s3fs(s3.url, bucket)
    copied = copy(manager, segment())
    [log] = [key for key in s3.keys(bucket) if key.endswith(".log")]
    for key in (log, log + "-of-another"):
        s3.client().create_multipart_upload(Bucket=bucket, Key=key)
    manager.delete_log_segment_data(copied)
    assert open_uploads(s3, bucket) == [log + "-of-another"]
    assert s3.keys(bucket) == {}
    manager.close()


def test_a_bucket_that_is_not_there_is_told_at_once(s3: "S3Endpoint") -> None:
    with pytest.raises(RemoteStorageError, match="no-such-bucket"):
        through_s3fs(s3.url, "no-such-bucket")


def test_a_bucket_that_went_is_no_missing_object(s3: "S3Endpoint", bucket: str) -> None:
    manager = through_s3fs(s3.url, bucket)
    s3.client().delete_bucket(Bucket=bucket)
    with pytest.raises(RemoteStorageError):
        manager.copy_log_segment_data(segment(), segment_data())
    manager.close()


def test_secrets_are_in_no_message(
    s3: "S3Endpoint", bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "rsm_plugins"):
        for url, options in (
            (f"s3://{bucket}", {"option.secret": SECRET, "option.nonsense": "1"}),
            (f"sftp://joe:{SECRET}@127.0.0.1:1/x", {}),
            (f"nosuch://joe:{SECRET}@host/x", {"option.password": SECRET}),
            (f"s3://{bucket}-x", {"option.secret": SECRET, "option.endpoint_url": "http://[::1"}),
        ):
            with pytest.raises((ValueError, RemoteStorageError)) as caught:
                configured(url, **options)
            assert SECRET not in str(caught.value)
            assert caught.value.__suppress_context__
    assert SECRET not in caplog.text


def test_a_missing_library_says_what_to_install() -> None:
    with pytest.raises(ValueError, match=r"pip install 'DIRECTORY-OF-THE-CLONE\[fsspec\]'"):
        configured("gs://bucket/x")


def test_hdfs_is_sent_to_its_own_class() -> None:
    with pytest.raises(ValueError, match=r"rsm_plugins\.hdfs:HdfsRemoteStorageManager"):
        configured("hdfs://host/x")


def test_chained_urls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allowed is protocol://path"):
        configured(f"simplecache::file://{tmp_path}/r")


def test_options_are_json_where_they_can_be(tmp_path: Path) -> None:
    manager = configured(
        f"file://{tmp_path}",
        **{"option.auto_mkdir": "false", "option.a": "1.5", "option.b": '"15"', "option.c": "x/y"},
    )
    assert manager.options == {"auto_mkdir": False, "a": 1.5, "b": "15", "c": "x/y"}
    manager.close()


def test_what_a_dead_writer_left_is_not_listed_and_goes_with_the_segment(tmp_path: Path) -> None:
    manager = configured(f"file://{tmp_path}/r")
    copied = copy(manager, segment())
    [log] = (tmp_path / "r").rglob("*.log")
    left = Path(f"{log}.copying")
    left.mkdir()
    (left / "0123").write_bytes(b"half")
    assert len(list(manager.list_objects())) == 3
    manager.delete_log_segment_data(copied)
    assert files(tmp_path / "r") == []
    manager.close()


def test_a_failed_copy_removes_its_temporary_file(tmp_path: Path) -> None:
    manager = configured(f"file://{tmp_path}/r")
    data = replace(segment_data(), log=BreakingFile(BIG, after=3 << 20))
    with pytest.raises(OSError, match="broke"):
        manager.copy_log_segment_data(segment(size_bytes=len(BIG)), data)
    assert [path for path in (tmp_path / "r").rglob("*") if path.is_file()] == []
    manager.close()


def test_a_reader_sees_the_old_object_or_the_new_never_a_part(tmp_path: Path) -> None:
    manager = configured(f"file://{tmp_path}/r")
    store = manager._store
    bodies = [bytes([n]) * (2 << 20) for n in (1, 2)]
    store.put("k", io.BytesIO(bodies[0]))
    done = threading.Event()

    def look() -> set[bytes]:
        seen = set()
        while not done.is_set():
            with io.BufferedReader(store.get("k")) as stream:
                seen.add(stream.read())
        return seen

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        for n in range(20):
            store.put("k", io.BytesIO(bodies[n % 2]))
        done.set()
        assert looking.result() <= set(bodies)
    manager.close()


@pytest.fixture(params=["memory", "file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FsspecStore]:
    if request.param == "s3":
        s3 = request.getfixturevalue("s3")
        manager = through_s3fs(s3.url, s3.new_bucket())
    elif request.param == "memory":
        manager = configured(f"memory:/{tmp_path}")
    else:
        manager = configured(f"file://{tmp_path}/r")
    yield manager._store
    manager.close()


def test_ends_of_objects_are_told_alike_by_all(store: FsspecStore) -> None:
    store.put("a/b", io.BytesIO(b"0123456789"))
    for first, last, expected in (
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (0, 0, b"0"),
        (9, 9, b"9"),
        (9, 100, b"9"),
        (0, 100, b"0123456789"),
    ):
        with io.BufferedReader(store.get("a/b", first, last)) as stream:
            assert stream.read() == expected
    for first in (10, 11, 1_000):
        for last in (None, 10_000):
            with pytest.raises(RemoteObjectDamagedError):
                store.get("a/b", first, last)


def test_an_empty_object_is_one(store: FsspecStore) -> None:
    store.put("a/empty", io.BytesIO())
    with io.BufferedReader(store.get("a/empty")) as stream:
        assert stream.read() == b""
    [found] = store.list_objects("a/")
    assert (found.key, found.size_bytes) == ("a/empty", 0)


def test_listings_are_in_the_order_of_keys_and_tell_the_time(store: FsspecStore) -> None:
    import io

    keys = ["a-/x", "a.b", "a/x", "a/y/z", "a0/x", "b"]
    for key in keys:
        store.put(key, io.BytesIO(b"1"))
    found = list(store.list_objects())
    assert [each.key for each in found] == sorted(keys)
    assert all(abs(each.modified_ms / 1_000 - time()) < 600 for each in found)
    assert [each.key for each in store.list_objects("a/")] == ["a/x", "a/y/z"]
    assert [each.key for each in store.list_objects("a/y/z")] == ["a/y/z"]
    assert list(store.list_objects("nothing/here")) == []


class WithoutRanges(MemoryFileSystem):
    """A store that answers every request for a range with the whole object."""

    protocol = "memory"
    cachable = False

    def cat_file(self, path: str, **_: Any) -> bytes:
        body: bytes = super().cat_file(path)
        return body


def test_a_store_without_ranges_gives_no_wrong_bytes() -> None:
    store = FsspecStore(WithoutRanges(), "/without-ranges", rename=False, limits=CallLimits(10))
    store.put("k", io.BytesIO(b"0123456789"))
    with io.BufferedReader(store.get("k", 0, 3)) as stream:
        assert stream.read() == b"0123"
    for first, last in ((1, 3), (5, 9), (5, 50), (5, None)):
        with pytest.raises(RemoteStorageError, match="ranges"):
            io.BufferedReader(store.get("k", first, last)).read()
    store.delete(["k"])


def test_a_directory_that_went_is_a_failing_store_and_is_not_made_again(tmp_path: Path) -> None:
    manager = configured(f"file://{tmp_path}/root")
    root, copied = tmp_path / "root", copy(manager, segment())
    elsewhere = root.rename(tmp_path / "unmounted")
    for call in (
        lambda: manager.fetch_log_segment(copied, 0),
        lambda: manager.delete_log_segment_data(copied),
        lambda: list(manager.list_objects()),
        lambda: manager.copy_log_segment_data(segment(2), segment_data()),
    ):
        with pytest.raises(RetriableRemoteStorageError, match="root of the store"):
            call()
    assert not root.exists()
    elsewhere.rename(root)
    manager.fetch_log_segment(copied, 0).close()
    manager.close()


@pytest.mark.parametrize("plugin", [LocalFsRemoteStorageManager, FsspecRemoteStorageManager])
def test_a_listing_never_leaves_the_root(
    plugin: type[LocalFsRemoteStorageManager | FsspecRemoteStorageManager], tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"x")
    manager = plugin()
    manager.configure({"dir": f"{tmp_path}/root", "url": f"file://{tmp_path}/root"})
    copy(manager, segment())
    for prefix in ("../outside/", "../", "/", f"{tmp_path}/outside/", "a/../../outside/", "a\0/b"):
        assert list(manager.list_objects(prefix)) == []
    assert len(list(manager.list_objects())) == 3
    manager.close()
