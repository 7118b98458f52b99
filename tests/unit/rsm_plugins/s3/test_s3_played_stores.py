"""The plugin for S3 on whole stores that lack a part of S3, over real HTTP: `lesser_stores.py`."""

import io
from collections.abc import Callable, Iterator, Mapping

import pytest

from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from rsm_plugins.contract import AllPromises
from rsm_plugins.contract.run import Candidate, Verdict, ask, ask_all
from rsm_plugins.s3.plugin import S3RemoteStorageManager
from rsm_plugins.testing import BreakingFile
from tests.support.stores.answering_server import Answer, error
from tests.support.stores.few_promises import FEW
from tests.support.stores.lesser_stores import LARGE_BYTES, LINES, NO_CHECKSUMS, Line, has_checksum
from tests.support.stores.played_s3 import BUCKET, Call, PlayedS3
from tests.support.stores.s3_faults import Kind

PART_BYTES = 5 << 20
KEEPING = [name for name, line in LINES.items() if not line.breaks]
BREAKING = [name for name, line in LINES.items() if line.breaks]
LYING = ("keeps_nothing", "keeps_half")

pytestmark = [pytest.mark.lasts(seconds=25), pytest.mark.lasts(seconds=20)]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def configured(played: PlayedS3, **more: str) -> S3RemoteStorageManager:
    """A plugin on a played store; `more` are settings with `_` for `.`."""
    manager = S3RemoteStorageManager()
    named = {name.replace("_", "."): value for name, value in more.items()}
    manager.configure(settings(played.url, named))
    return manager


def settings(url: str, more: Mapping[str, str]) -> dict[str, str]:
    plain = {
        "bucket": BUCKET,
        "endpoint.url": url,
        "region": "here",
        "prefix": "p",
        "upload.part.size.bytes": str(PART_BYTES),
    }
    return {**plain, **more, "node.id": "1", "cluster.id": "c"}


def candidate(line: Line, played: PlayedS3, monkeypatch: pytest.MonkeyPatch) -> Candidate:
    """A plugin with the settings of the line, for the store that is played."""
    url = played.url
    if line.is_virtual_host:
        # A name that nobody needs to resolve: the request goes to the store as to a proxy.
        monkeypatch.setenv("HTTP_PROXY", url)
        url = "http://s3.test"

    def make() -> S3RemoteStorageManager:
        manager = S3RemoteStorageManager()
        manager.configure(settings(url, line.settings))
        return manager

    return Candidate(make, settings=settings(url, line.settings), large_segment_bytes=LARGE_BYTES)


@pytest.fixture
def played() -> Iterator[PlayedS3]:
    with PlayedS3() as store:
        yield store


@pytest.mark.parametrize("name", KEEPING)
def test_a_few_promises_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = LINES[name]
    with line.play() as played:
        manager = candidate(line, played, monkeypatch).make()
        for promise in (*FEW, AllPromises.test_every_object_of_a_segment_is_listed):
            asked = AllPromises()
            promise(asked, manager)
            assert asked.clean_up(manager) == []
        manager.close()
        assert (played.objects, played.uploads) == ({}, {})


@pytest.mark.parametrize("name", BREAKING)
def test_what_a_store_lacks_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = LINES[name]
    with line.play() as played:
        asked = candidate(line, played, monkeypatch)
        outcome = ask(asked, line.breaks[0].__name__, asked.make(), left := [])
        assert outcome.verdict is Verdict.BROKEN
        assert line.says in outcome.reason
        assert left == []
        assert (played.objects, played.uploads) == ({}, {})


@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("name", LINES)
def test_every_promise_is_kept_or_its_store_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LINES[name]
    with line.play() as played:
        asked = candidate(line, played, monkeypatch)
        outcomes = list(ask_all(asked, asked.make(), left := []))
        broken = {one.name: one.reason for one in outcomes if one.verdict is Verdict.BROKEN}
        due = {promise.__name__ for promise in line.breaks}
        assert due <= broken.keys() if name in LYING else due == broken.keys(), broken
        assert all(line.says in broken[one] for one in due), broken
        assert left == []
        assert (played.objects, played.uploads) == ({}, {})


# ------------------------------------------------------------------ checksums


def every_call(played: PlayedS3, **more: str) -> None:
    """Let a plugin make every call that it knows, some of which fail."""
    manager = configured(played, **more)
    store = manager._store
    store.put("small", io.BytesIO(b"small"))
    store.put_once("once", io.BytesIO(b"once"))
    store.put("large", io.BytesIO(bytes(PART_BYTES + 1)))
    with pytest.raises(OSError, match="broke"):
        store.put("broken", BreakingFile(bytes(2 * PART_BYTES), after=PART_BYTES))
    store.get("small").close()
    store.get("small", 1, 2).close()
    list(store.list_objects())
    store.delete(["small"])
    store.delete(["once", "large", "broken"])
    manager.close()


@pytest.mark.parametrize("wanted", ["when_required", "when_supported"])
def test_no_call_carries_a_checksum_of_any_kind_where_there_is_to_be_none(
    played: PlayedS3, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", wanted)
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", wanted)
    every_call(played, checksum="none")
    assert [call.kind for call in played.calls if has_checksum(call)] == []
    not_asked = set(Kind) - set(played.kinds())
    assert not_asked == {
        Kind.DELETE_OBJECTS,  # it must have one
        Kind.LIST_OBJECTS_V1,  # the store has the second version
        Kind.LIST_PARTS,
        Kind.OTHER,
    }
    assert (played.objects, played.uploads) == ({}, {})


def test_every_write_carries_a_checksum_by_default(played: PlayedS3) -> None:
    every_call(played)
    without = {call.kind for call in played.calls if not has_checksum(call)}
    assert without.isdisjoint({Kind.PUT_OBJECT, Kind.CREATE_UPLOAD, Kind.UPLOAD_PART})
    assert not any(call for call in played.calls if "x-amz-trailer" in call.headers)


@pytest.mark.parametrize(
    "kind", [Kind.PUT_OBJECT, Kind.CREATE_UPLOAD, Kind.UPLOAD_PART, Kind.COMPLETE_UPLOAD,
             Kind.HEAD_OBJECT]
)  # fmt: skip
@pytest.mark.parametrize(
    "refusal", [error(400, "InvalidArgument"), error(400, "OfItsOwn"), Answer(400), Answer(501)]
)
def test_a_refused_checksum_names_its_setting_and_leaves_nothing(
    kind: Kind, refusal: Answer
) -> None:
    def refuses(call: Call) -> Answer | None:
        if call.kind is not kind or not (has_checksum(call) or kind is Kind.COMPLETE_UPLOAD):
            return None
        return Answer(refusal.status) if kind is Kind.HEAD_OBJECT else refusal

    with PlayedS3(refuses) as played:
        manager = configured(played)
        size = 10 if kind is Kind.PUT_OBJECT else PART_BYTES + 1
        with pytest.raises(RemoteStorageError, match=r"rsm\.config\.checksum=none"):
            manager._store.put("k", io.BytesIO(bytes(size)))
        manager.close()
        assert (played.objects, played.uploads) == ({}, {})


def test_without_checksums_no_message_names_that_setting() -> None:
    with PlayedS3(lambda one: error(501, "NotImplemented") if one.body else None) as played:
        manager = configured(played, checksum="none")
        with pytest.raises(RemoteStorageError) as failed:
            manager._store.put("k", io.BytesIO(b"k"))
        manager.close()
    assert "checksum=none" not in str(failed.value)


# ------------------------------------------------------------------ uploads that fail


def keeps_less(body: bytes) -> bytes:
    return body[:-1]


@pytest.mark.parametrize("checksum", ["crc32c", "none"])
def test_an_upload_that_was_completed_and_is_not_what_was_sent_is_deleted(checksum: str) -> None:
    with PlayedS3(keeps=keeps_less) as played:
        manager = configured(played, checksum=checksum)
        with pytest.raises(RetriableRemoteStorageError, match="does not keep what was sent"):
            manager._store.put("k", io.BytesIO(bytes(PART_BYTES + 1)))
        manager.close()
        assert (played.objects, played.uploads) == ({}, {})


def test_an_upload_whose_completion_is_refused_keeps_the_existing_object() -> None:
    refused: list[Answer] = []

    def refuses(call: Call) -> Answer | None:
        return refused[0] if refused and call.kind is Kind.COMPLETE_UPLOAD else None

    with PlayedS3(refuses) as played:
        manager = configured(played)
        manager._store.put("k", io.BytesIO(bytes(PART_BYTES + 1)))
        refused.append(error(403, "AccessDenied"))
        with pytest.raises(RemoteStorageError, match="AccessDenied"):
            manager._store.put("k", io.BytesIO(bytes(PART_BYTES + 2)))
        manager.close()
        assert [len(body) for body in played.objects.values()] == [PART_BYTES + 1]
        assert played.uploads == {}


def test_a_store_without_multipart_upload_names_the_size_setting() -> None:
    with LINES["plain_calls_only"].play() as played:
        manager = configured(
            played, **{key.replace(".", "_"): v for key, v in NO_CHECKSUMS.items()}
        )
        with pytest.raises(RemoteStorageError, match=r"set rsm\.config\.upload\.part\.size\.bytes"):
            manager._store.put("k", io.BytesIO(bytes(PART_BYTES + 1)))
        manager.close()


# ------------------------------------------------------------------ batched deletes

Refusal = Callable[[Call], Answer]


def per_key(code: str) -> Refusal:
    def answer(call: Call) -> Answer:
        keys = [f"p/{name}" for name in ("one", "two")]
        failed = "".join(f"<Error><Key>{key}</Key><Code>{code}</Code></Error>" for key in keys)
        return Answer(200, f"<DeleteResult>{failed}</DeleteResult>".encode())

    return answer


def deleted(answer: Refusal | Answer, heard: list[Kind]) -> None:
    """Put and delete two keys, twice, on a store that answers a batch so; `heard`: deletions."""

    def refuses(call: Call) -> Answer | None:
        if call.kind is not Kind.DELETE_OBJECTS:
            return None
        return answer if isinstance(answer, Answer) else answer(call)

    with PlayedS3(refuses) as played:
        manager = configured(played, api_call_attempts="1")
        try:
            for _ in range(2):
                for key in ("one", "two"):
                    manager._store.put(key, io.BytesIO(b"1"))
                manager._store.delete(["one", "two"])
            assert played.objects == {}
        finally:
            manager.close()
            heard += [kind for kind in played.kinds() if kind.name.startswith("DELETE")]


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, "InvalidArgument"),
        error(400, "MalformedXML"),
        error(400, "MissingContentMD5"),
        error(400, "InvalidDigest"),
        error(400, "BadDigest"),
        error(400, "XAmzContentSHA256Mismatch"),
        error(400, "OfItsOwn"),
        error(403, "SignatureDoesNotMatch"),
        error(404, "NoSuchKey"),
        error(405, "MethodNotAllowed"),
        error(411, "MissingContentLength"),
        error(415, "UnsupportedMediaType"),
        error(501, "NotImplemented"),
        error(200, "NotImplemented"),
        Answer(400),
        Answer(400, b"<html/>"),
        Answer(405, b"not here"),
        Answer(404, headers={"x-amz-request-id": "1"}),
        per_key("NotImplemented"),
        per_key("InvalidArgument"),
        per_key("OfItsOwn"),
        per_key(""),
        Answer(200, b"<DeleteResult/>"),
        Answer(200, b"<html/>"),
        Answer(200),
        Answer(204),
    ],
    ids=lambda one: getattr(one, "body", b"").decode() or None,
)
def test_a_refused_batch_goes_one_by_one_and_is_not_asked_for_again(
    refusal: Refusal | Answer,
) -> None:
    deleted(refusal, heard := [])
    assert heard == [Kind.DELETE_OBJECTS] + [Kind.DELETE_OBJECT] * 4


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(403, "AccessDenied"), RemoteStorageError),
        (error(403, "InvalidAccessKeyId"), RemoteStorageError),
        (error(400, "ExpiredToken"), RemoteStorageError),
        (error(404, "NoSuchBucket"), RemoteStorageError),
        (Answer(403), RemoteStorageError),
        (Answer(401), RemoteStorageError),
        (per_key("AccessDenied"), RemoteStorageError),
        (error(503, "SlowDown"), RetriableRemoteStorageError),
        (error(429, "TooManyRequests"), RetriableRemoteStorageError),
        (error(400, "RequestTimeout"), RetriableRemoteStorageError),
        (error(500, "InternalError"), RetriableRemoteStorageError),
        (Answer(502, b"<html>bad gateway</html>"), RetriableRemoteStorageError),
        (Answer(504), RetriableRemoteStorageError),
        (per_key("SlowDown"), RetriableRemoteStorageError),
        (per_key("503"), RetriableRemoteStorageError),
        (per_key("InternalError"), RetriableRemoteStorageError),
    ],
)
def test_a_batch_that_is_forbidden_or_throttled_stays_a_batch(
    answer: Refusal | Answer, kind: type[RemoteStorageError]
) -> None:
    heard: list[Kind] = []
    with pytest.raises(RemoteStorageError) as failed:
        deleted(answer, heard)
    assert type(failed.value) is kind
    assert heard == [Kind.DELETE_OBJECTS]
