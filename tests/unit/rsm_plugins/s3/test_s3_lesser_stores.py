"""Stores that speak only a part of S3, answer by answer; whole ones: `test_s3_played_stores.py`."""

import io
from collections.abc import Iterator

import pytest

from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from rsm_plugins.fsspec.plugin import FsspecRemoteStorageManager
from rsm_plugins.s3.settings import SETTINGS, s3_options
from rsm_plugins.s3.store import S3Store
from rsm_plugins.settings import read_settings
from tests.support.stores.answering_server import Answer, AnsweringServer, Request, error

NO_UPLOADS = Answer(
    body=b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
    b"</ListMultipartUploadsResult>"
)


@pytest.fixture
def lesser() -> Iterator[AnsweringServer]:
    with AnsweringServer() as running:
        yield running


@pytest.fixture
def store(lesser: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    written = {
        "bucket": "b",
        "endpoint.url": lesser.url,
        "region": "here",
        "prefix": "p",
        "api.call.attempts": "1",
    }
    made = S3Store(s3_options(read_settings(SETTINGS, written)))
    yield made
    made.close()


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (400, "MissingContentMD5")])
def test_without_batched_deletes_keys_go_one_by_one(
    store: S3Store, lesser: AnsweringServer, status: int, code: str
) -> None:
    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return NO_UPLOADS
        return error(status, code) if request.method == "POST" else Answer(204)

    lesser.answer = answer
    store.delete(["one", "two"])
    store.delete(["three", "four"])
    changes = [line for line in lesser.asked() if not line.startswith("GET")]
    assert changes == ["POST /b?delete"] + [
        f"DELETE /b/p/{key}" for key in ("one", "two", "three", "four")
    ]


def test_a_key_that_could_not_be_deleted_is_told(store: S3Store, lesser: AnsweringServer) -> None:
    failures = b"".join(
        b"<Error><Key>p/%s</Key><Code>%s</Code><Message>m</Message></Error>" % pair
        for pair in ((b"one", b"InternalError"), (b"two", b"AccessDenied"), (b"x", b"NoSuchKey"))
    )

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return NO_UPLOADS
        return Answer(body=b"<DeleteResult>%s</DeleteResult>" % failures)

    lesser.answer = answer
    with pytest.raises(RemoteStorageError, match="p/two") as failed:
        store.delete(["one", "two", "x"])
    assert not isinstance(failed.value, RetriableRemoteStorageError)


_BARE = Answer(404, headers={"x-amz-request-id": "1"})


@pytest.mark.parametrize("absent", [error(404, "NoSuchKey"), _BARE])
def test_deleting_what_is_absent_is_fine_also_where_the_store_says_so(
    store: S3Store, lesser: AnsweringServer, absent: Answer
) -> None:
    lesser.answer = lambda one: NO_UPLOADS if one.method == "GET" else absent
    store.delete(["one"])


@pytest.mark.parametrize("body", [b"", b"<html>none<br></html>", b"<html/>", b"default backend"])
def test_a_404_of_a_proxy_is_no_missing_object(
    store: S3Store, lesser: AnsweringServer, body: bytes
) -> None:
    lesser.answer = lambda one: NO_UPLOADS if "uploads" in one.target else Answer(404, body)
    with pytest.raises(RemoteStorageError, match="not S3's"):
        store.get("one")
    with pytest.raises(RemoteStorageError, match="not S3's"):
        store.delete(["one"])


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (403, "AccessDenied")])
def test_where_uploads_cannot_be_listed_an_operator_is_told_once(
    store: S3Store,
    lesser: AnsweringServer,
    caplog: pytest.LogCaptureFixture,
    status: int,
    code: str,
) -> None:
    lesser.answer = lambda one: error(status, code) if one.method == "GET" else Answer(204)
    store.delete(["one"])
    store.delete(["two"])
    assert lesser.asked()[-2:] == ["DELETE /b/p/one", "DELETE /b/p/two"]
    assert sum(line.startswith("GET") for line in lesser.asked()) == 1
    assert caplog.text.count("lifecycle rule") == 1


def test_a_store_that_says_there_is_no_upload_is_asked_again(
    store: S3Store, lesser: AnsweringServer, caplog: pytest.LogCaptureFixture
) -> None:
    lesser.answer = lambda one: error(404, "NoSuchUpload") if one.method == "GET" else Answer(204)
    store.delete(["one"])
    store.delete(["two"])
    assert [line.partition(" ")[0] for line in lesser.asked()] == ["GET", "DELETE"] * 2
    assert "lifecycle" not in caplog.text


def test_only_uploads_of_that_very_key_are_aborted_page_by_page(
    store: S3Store, lesser: AnsweringServer
) -> None:
    def page(key: str, upload: str, more: str) -> Answer:
        return Answer(
            body=f"<ListMultipartUploadsResult>{more}<Upload><Key>{key}</Key>"
            f"<UploadId>{upload}</UploadId></Upload></ListMultipartUploadsResult>".encode()
        )

    def answer(request: Request) -> Answer:
        if request.method != "GET":
            return Answer(204)
        if "key-marker" in request.target:
            return page("p/k", "u2", "")
        marks = "<NextKeyMarker>m</NextKeyMarker><NextUploadIdMarker>n</NextUploadIdMarker>"
        return page("p/kk", "u1", f"<IsTruncated>true</IsTruncated>{marks}")

    lesser.answer = answer
    store.delete(["k"])
    changes = [line for line in lesser.asked() if not line.startswith("GET")]
    assert changes == ["DELETE /b/p/k?uploadId=u2", "DELETE /b/p/k"]


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (400, "InvalidArgument")])
def test_without_conditional_puts_objects_are_put(
    store: S3Store, lesser: AnsweringServer, status: int, code: str
) -> None:
    lesser.answer = lambda one: error(status, code) if "If-None-Match" in one.headers else Answer()
    store.put_once("one", io.BytesIO(b"1"))
    store.put_once("two", io.BytesIO(b"2"))
    assert lesser.asked() == ["PUT /b/p/one", "PUT /b/p/one", "PUT /b/p/two"]


def test_checksums_go_as_headers_and_bodies_are_not_chunked(
    store: S3Store, lesser: AnsweringServer
) -> None:
    store.put("k", io.BytesIO(b"123456789"))
    headers = lesser.requests[0].headers
    assert headers["x-amz-checksum-crc32c"] == "4waSgw=="
    assert headers["Content-Length"] == "9"
    assert "Expect" not in headers  # a small body is sent at once
    assert "x-amz-trailer" not in headers
    assert "x-amz-sdk-checksum-algorithm" not in headers


def test_a_store_that_keeps_other_bytes_is_noticed(store: S3Store, lesser: AnsweringServer) -> None:
    lesser.answer = lambda _: Answer(headers={"x-amz-checksum-crc32c": "AAAAAA=="})
    with pytest.raises(RetriableRemoteStorageError, match="does not keep what was sent"):
        store.put("k", io.BytesIO(b"123456789"))


def test_a_range_with_status_200_is_taken_if_it_says_which(
    store: S3Store, lesser: AnsweringServer
) -> None:
    lesser.answer = lambda _: Answer(200, b"3456", {"Content-Range": "bytes 3-6/10"})
    assert store.get("k", 3, 6).readall() == b"3456"


def test_a_store_without_ranges_is_refused_but_for_first_bytes(
    store: S3Store, lesser: AnsweringServer
) -> None:
    lesser.answer = lambda _: Answer(200, b"0123456789")
    assert store.get("k", 0, 3).readall() == b"0123"
    with pytest.raises(RemoteStorageError, match="without a Content-Range"):
        store.get("k", 3, 6)


def test_a_listing_continues_page_by_page(store: S3Store, lesser: AnsweringServer) -> None:
    def page(key: str, more: str) -> Answer:
        one = f"<Key>{key}</Key><Size>7</Size><LastModified>1970-01-01T00:00:02Z</LastModified>"
        return Answer(
            body=f"<ListBucketResult>{more}<Contents>{one}</Contents></ListBucketResult>".encode()
        )

    lesser.answer = lambda one: (
        page("p/b", "")
        if "continuation-token" in one.target
        else page(
            "p/a",
            "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>",
        )
    )
    found = list(store.list_objects())
    assert [(one.key, one.size_bytes, one.modified_ms) for one in found] == [
        ("a", 7, 2_000),
        ("b", 7, 2_000),
    ]


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (403, "AccessDenied")])
def test_s3fs_deletes_also_where_uploads_cannot_be_listed(
    lesser: AnsweringServer, caplog: pytest.LogCaptureFixture, status: int, code: str
) -> None:
    manager = FsspecRemoteStorageManager()
    lesser.answer = lambda one: error(status, code) if "uploads" in one.target else Answer(204)
    manager.configure(
        {
            "url": "s3://b/p",
            "option.key": "test",
            "option.secret": "test",
            "option.endpoint_url": lesser.url,
            "option.config_kwargs": '{"retries": {"max_attempts": 1}}',
        }
    )
    manager._store.delete(["one"])
    manager._store.delete(["two"])
    manager.close()
    assert caplog.text.count("lifecycle rule") == 1
    asked = [line for line in lesser.asked() if not line.startswith("HEAD")]
    assert asked == ["GET /b?uploads&prefix=p%2Fone", "DELETE /b/p/one", "DELETE /b/p/two"]
