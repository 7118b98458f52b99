"""Objects on a real S3 endpoint: what lies in the bucket afterwards, and what a failure leaves."""

import io
import logging
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from crc32c import crc32c

from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.layout.objects import ObjectFacts
from rsm_plugins.s3.plugin import S3RemoteStorageManager
from rsm_plugins.s3.settings import SETTINGS, s3_options
from rsm_plugins.s3.store import S3Store
from rsm_plugins.settings import read_settings
from rsm_plugins.testing import LOG_BYTES, copy, read, segment

if TYPE_CHECKING:
    from tests.support.stores.s3 import S3Endpoint
    from tests.support.stores.s3_proxy import S3Proxy

pytestmark = pytest.mark.integration

PART = 5 << 20
SECRET = "a-very-secret-key"


class Bucket:
    """A bucket of its own, looked at from outside; and stores and plugins on it."""

    def __init__(self, s3: "S3Endpoint") -> None:
        self.client: Any = s3.client()
        self.settings = {
            "endpoint.url": s3.url,
            "bucket": s3.new_bucket(),
            "region": "us-east-1",
            "upload.part.size.bytes": str(PART),
        }
        self.name = self.settings["bucket"]
        self._open: list[Any] = []

    def store(self, **more: str) -> S3Store:
        values = read_settings(SETTINGS, self._with(more))
        self._open.append(S3Store(s3_options(values)))
        return self._open[-1]  # type: ignore[no-any-return]

    def manager(self, **more: str) -> S3RemoteStorageManager:
        manager = S3RemoteStorageManager()
        manager.configure(self._with(more))
        self._open.append(manager)
        return manager

    def head(self, key: str) -> Any:
        return self.client.head_object(Bucket=self.name, Key=key, ChecksumMode="ENABLED")

    def listing(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return [one["Key"] for one in found]

    def uploads(self) -> list[str]:
        found = self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", [])
        return [one["Key"] for one in found]

    def begin_upload(self, key: str) -> None:
        """What a copy whose process died leaves."""
        made = self.client.create_multipart_upload(Bucket=self.name, Key=key)
        self.client.upload_part(
            Bucket=self.name, Key=key, UploadId=made["UploadId"], PartNumber=1, Body=b"x"
        )

    def close(self) -> None:
        for one in self._open:
            one.close()

    def _with(self, more: dict[str, str]) -> dict[str, str]:
        return self.settings | {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture
def bucket(s3: "S3Endpoint", monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    made = Bucket(s3)
    yield made
    made.close()


@pytest.fixture
def proxy(s3: "S3Endpoint") -> Iterator["S3Proxy"]:
    from tests.support.stores.s3_proxy import S3Proxy

    with S3Proxy(s3.url) as running:
        yield running


def some_bytes(size: int) -> bytes:
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


@pytest.mark.parametrize(
    ("size", "parts"),
    [(0, 0), (1, 0), (PART - 1, 0), (PART, 0), (PART + 1, 2), (2 * PART, 2), (2 * PART + 1, 3)],
)
def test_objects_of_every_size_are_kept_with_their_checksum(
    bucket: Bucket, size: int, parts: int
) -> None:
    body, store = some_bytes(size), bucket.store()
    assert store.put("k", io.BytesIO(body)) == ObjectFacts(size, crc32c(body))
    head = bucket.head("k")
    assert head["ContentLength"] == size
    assert head["ChecksumType"] == "FULL_OBJECT"
    assert int.from_bytes(b64decode(head["ChecksumCRC32C"])) == crc32c(body)
    assert head["ETag"].strip('"').partition("-")[2] == (str(parts) if parts else "")
    with io.BufferedReader(store.get("k")) as stream:
        assert stream.read() == body
    assert bucket.uploads() == []


def test_without_checksums_none_is_sent(bucket: Bucket) -> None:
    store = bucket.store(checksum="none")
    for key, size in (("small", 9), ("large", PART + 1)):
        store.put(key, io.BytesIO(some_bytes(size)))
        assert "ChecksumCRC32C" not in bucket.head(key)


def test_many_uploads_share_few_slots(bucket: Bucket) -> None:
    store, body = bucket.store(upload_concurrency="1"), some_bytes(2 * PART + 7)
    with ThreadPoolExecutor(4) as pool:
        facts = list(pool.map(lambda n: store.put(f"k{n}", io.BytesIO(body)), range(4)))
    assert facts == [ObjectFacts(len(body), crc32c(body))] * 4


@pytest.mark.parametrize("size", [1_000, 3 * PART])
def test_a_byte_that_changed_on_its_way_is_refused(
    bucket: Bucket, proxy: "S3Proxy", size: int
) -> None:
    from tests.support.stores.s3_faults import Fault, Rule

    store = bucket.store(endpoint_url=proxy.url)
    proxy.inject(Rule(Fault.FLIP_REQUEST, times=1))
    with pytest.raises(RetriableRemoteStorageError, match="BadDigest"):
        store.put("k", io.BytesIO(some_bytes(size)))
    assert bucket.listing() == bucket.uploads() == []


def test_an_upload_whose_source_breaks_leaves_nothing(bucket: Bucket) -> None:
    class Breaking(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            if self.tell() >= 2 * PART:
                raise OSError(5, "the disk broke")
            return super().readinto(buffer)

    with pytest.raises(OSError, match="the disk broke"):
        bucket.store().put("k", Breaking(some_bytes(4 * PART)))
    assert bucket.listing() == bucket.uploads() == []


@pytest.mark.parametrize("size", [1_000, 2 * PART])
def test_a_lost_answer_is_no_failure(bucket: Bucket, proxy: "S3Proxy", size: int) -> None:
    from tests.support.stores.s3_faults import Fault, Kind, Rule

    lost = frozenset({Kind.PUT_OBJECT, Kind.COMPLETE_UPLOAD})
    store, body = bucket.store(endpoint_url=proxy.url), some_bytes(size)
    proxy.inject(Rule(Fault.LOST_ANSWER, kinds=lost, times=1))
    assert store.put_once("k", io.BytesIO(body)) == ObjectFacts(size, crc32c(body))
    assert sum(proxy.plan.injected.values()) == 1
    assert bucket.head("k")["ContentLength"] == size
    assert bucket.uploads() == []


def test_what_is_written_once_is_not_replaced(bucket: Bucket) -> None:
    store = bucket.store()
    store.put_once("k", io.BytesIO(b"first"))
    store.put_once("k", io.BytesIO(b"first"))
    with pytest.raises(RemoteStorageError, match="another object"):
        store.put_once("k", io.BytesIO(b"other"))
    with io.BufferedReader(store.get("k")) as stream:
        assert stream.read() == b"first"


def test_a_deletion_aborts_what_dead_copies_left(bucket: Bucket) -> None:
    for key in ("p/k", "p/k", "p/kk"):
        bucket.begin_upload(key)
    bucket.store(prefix="p").delete(["k", "absent"])
    assert bucket.uploads() == ["p/kk"]


def test_ranges_are_exact_and_a_missing_byte_is_said(bucket: Bucket) -> None:
    store = bucket.store()
    store.put("k", io.BytesIO(b"0123456789"))
    for first, last, expected in (
        (0, 0, b"0"),
        (3, 5, b"345"),
        (9, 9, b"9"),
        (8, 100, b"89"),
        (2, None, b"23456789"),
    ):
        with io.BufferedReader(store.get("k", first, last)) as stream:
            assert stream.read() == expected
    with pytest.raises(RemoteObjectDamagedError):
        store.get("k", 10)
    with pytest.raises(RemoteResourceNotFoundError):
        store.get("absent", 0, 5)


def test_a_stream_that_was_closed_early_disturbs_no_other(bucket: Bucket) -> None:
    store, body = bucket.store(max_connections="1"), some_bytes(1 << 20)
    store.put("k", io.BytesIO(body))
    for first in range(20):
        with store.get("k", first) as stream:
            assert stream.read(3) == body[first : first + 3]


@pytest.mark.parametrize("name", ["CUT_BODY", "SHORT_BODY", "RESET_MID_BODY"])
def test_a_body_that_is_cut_is_retriable(bucket: Bucket, proxy: "S3Proxy", name: str) -> None:
    from tests.support.stores.s3_faults import Fault, Kind, Rule

    store = bucket.store(endpoint_url=proxy.url)
    store.put("k", io.BytesIO(some_bytes(100_000)))
    proxy.inject(Rule(Fault[name], kinds=frozenset({Kind.GET_OBJECT})))
    # Without a range nothing says how long the object is: then its checksum finds a short body.
    for last in (99_999, 50_000):
        with (
            pytest.raises(RetriableRemoteStorageError),
            io.BufferedReader(store.get("k", 0, last)) as stream,
        ):
            stream.read()


def test_a_flipped_byte_of_a_whole_object_is_found(bucket: Bucket, proxy: "S3Proxy") -> None:
    from tests.support.stores.s3_faults import Fault, Rule

    store = bucket.store(endpoint_url=proxy.url)
    store.put("k", io.BytesIO(some_bytes(1_000)))
    proxy.inject(Rule(Fault.FLIP_ANSWER))
    with (
        pytest.raises(RemoteObjectDamagedError),
        io.BufferedReader(store.get("k")) as stream,
    ):
        stream.read()


def test_a_store_that_hangs_is_given_up(bucket: Bucket, proxy: "S3Proxy") -> None:
    from tests.support.stores.s3_faults import Fault, Rule

    store = bucket.store(endpoint_url=proxy.url, read_timeout_ms="200", api_call_timeout_ms="500")
    proxy.inject(Rule(Fault.HANG))
    for call in (
        lambda: store.put("k", io.BytesIO(b"x")),
        lambda: store.get("k"),
        lambda: store.delete(["k"]),
        lambda: list(store.list_objects()),
    ):
        with pytest.raises(RetriableRemoteStorageError):
            call()
    proxy.calm()


def test_storage_class_and_encryption_are_on_every_object(bucket: Bucket) -> None:
    copy(bucket.manager(storage_class="STANDARD_IA", sse="AES256"), segment())
    bucket.store(storage_class="STANDARD_IA", sse="AES256").put(
        "in/parts", io.BytesIO(some_bytes(PART + 1))
    )
    heads = [bucket.head(key) for key in bucket.listing()]
    assert [head["StorageClass"] for head in heads] == ["STANDARD_IA"] * 4
    assert [head["ServerSideEncryption"] for head in heads] == ["AES256"] * 4


def test_segments_stay_readable_when_entropy_changes(bucket: Bucket) -> None:
    copied = [
        copy(bucket.manager(prefix_entropy_chars=chars), segment(number))
        for number, chars in enumerate(("0", "4", "8"))
    ]
    assert [one.custom_metadata for one in copied] == [None, b"e4", b"e8"]
    assert len({key.partition("/")[0] for key in bucket.listing()}) == 3
    later = bucket.manager(prefix_entropy_chars="2")
    for one in copied:
        assert read(later.fetch_log_segment(one, 0)) == LOG_BYTES
        later.delete_log_segment_data(one)
    assert bucket.listing() == []


def test_a_copy_that_never_ended_is_deleted_with_entropy(bucket: Bucket) -> None:
    manager = bucket.manager(prefix_entropy_chars="4")
    copy(manager, segment())
    manager.delete_log_segment_data(segment())
    assert bucket.listing() == []


def test_a_wrong_bucket_is_refused_at_the_start(bucket: Bucket) -> None:
    with pytest.raises(RemoteStorageError, match=r"rsm\.config\.bucket=no-such-bucket") as refused:
        bucket.manager(bucket="no-such-bucket")
    assert "NoSuchBucket" in str(refused.value)
    assert not isinstance(refused.value, RetriableRemoteStorageError)


def test_a_store_that_is_down_stops_no_start(
    bucket: Bucket, proxy: "S3Proxy", caplog: pytest.LogCaptureFixture
) -> None:
    from tests.support.stores.s3_faults import Fault, Rule

    proxy.inject(Rule(Fault.ERROR_500))
    manager = bucket.manager(endpoint_url=proxy.url)
    assert "does not answer now" in caplog.text
    proxy.calm()
    copied = copy(manager, segment())
    assert read(manager.fetch_log_segment(copied, 0)) == LOG_BYTES


def test_nothing_secret_is_logged_or_raised(
    bucket: Bucket, proxy: "S3Proxy", caplog: pytest.LogCaptureFixture
) -> None:
    from tests.support.stores.s3_faults import Fault, Rule

    caplog.set_level(logging.DEBUG)
    manager = bucket.manager(endpoint_url=proxy.url)
    copied = copy(manager, segment())
    read(manager.fetch_log_segment(copied, 0))
    said = []
    for fault in (Fault.ERROR_500, Fault.LOST_ANSWER, Fault.HANG):
        broken = bucket.manager(
            endpoint_url=proxy.url,
            read_timeout_ms="200",
            api_call_attempts="1",
        )
        proxy.inject(Rule(fault))
        with pytest.raises(RemoteStorageError) as failed:
            broken.fetch_log_segment(copied, 0)
        said.append(str(failed.value))
        proxy.calm()
    with pytest.raises(RemoteStorageError) as failed:
        bucket.manager(bucket="no-such-bucket")
    text = caplog.text + "".join(said) + str(failed.value)
    for secret in (SECRET, "Signature=", "AWS4-HMAC", "Authorization"):
        assert secret not in text
