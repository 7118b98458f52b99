"""Objects in one bucket of S3, or of a compatible store.

Required of every store: a PUT is complete or not there, it is durable once it is answered, and
every later read sees it. Not required: batched deletes, conditional PUTs, listings of uploads, the
second version of listings. A store that lacks one of these refuses it with an error of its own. So
any refusal counts, and is remembered as long as this object exists.

Must not know: segments, indexes, topics.
"""

import contextlib
import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from crc32c import crc32c

from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    StoredObject,
)
from rsm_plugins.layout.objects import ObjectFacts
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.s3.body import S3Body, length_of_range, whole_object_crc32c
from rsm_plugins.s3.client import S3Calls, list_page, make_client
from rsm_plugins.s3.errors import DIGESTS, RefusedError, is_refusal, status_in
from rsm_plugins.s3.settings import S3Options
from rsm_plugins.s3.upload import S3Uploader
from runtime.override import override

log = logging.getLogger(__name__)

_DELETES_MAX = 1_000
"""Keys of one DeleteObjects."""
_NO_BATCHES = DIGESTS | {"404"}
"""A body or a checksum that the store does not support, or a missing path."""
_NO_KEY = "NoSuchKey"
_NO_UPLOADS = "NoSuchUpload"
"""Error of one store (rclone) for a key without uploads."""


class S3Store(ObjectStore):
    """Objects under a prefix of a bucket."""

    def __init__(self, options: S3Options) -> None:
        """Make the client; no request is sent yet.

        Raises:
            ValueError: The library does not accept these settings.
        """
        client = make_client(
            options, timeout_s_max=options.call_timeout_s, attempts=options.attempts
        )
        self._calls = S3Calls(client, options.bucket, options.call_timeout_s)
        self._options, self._prefix = options, options.prefix
        self._uploader = S3Uploader(
            self._calls,
            part_bytes=options.part_bytes,
            concurrency=options.concurrency,
            write_params=options.write_params,
            has_checksums=options.has_checksums,
            abort_uploads=self._abort_uploads,
        )
        # DeleteObjects must carry a checksum.
        self._has_batches = options.has_checksums
        self._has_conditions = self._has_upload_listings = True

    @override
    def put(self, key: str, source: BinaryIO) -> ObjectFacts:
        return self._uploader.put(self._prefix + key, source)

    @override
    def put_once(self, key: str, source: BinaryIO) -> ObjectFacts:
        if not self._has_conditions:
            return self.put(key, source)
        try:
            return self._uploader.put(
                self._prefix + key, source, IfNoneMatch="*", hear={"412"}, refusals=True
            )
        except RefusedError as e:
            if e.status != 412:
                facts = self.put(key, source)
                log.info("the store has no conditional PUT, continues without: %s", e)
                self._has_conditions = False
                return facts
        # An earlier attempt succeeded and its answer was lost, or this is a repetition.
        source.seek(0)
        body = source.read()
        try:
            with io.BufferedReader(self.get(key)) as stream:
                is_same = stream.read() == body
        except RemoteResourceNotFoundError:
            is_same = False
        if not is_same:
            raise RemoteStorageError(
                f"{self._calls.doing('put_object', self._prefix + key)} failed: another object of"
                " that key is there, or was a moment ago"
            )
        return ObjectFacts(len(body), crc32c(body))

    @override
    def get(self, key: str, first: int = 0, last: int | None = None) -> io.RawIOBase:
        whole_key = self._prefix + key
        params: dict[str, Any] = {}
        if first or last is not None:
            params["Range"] = f"bytes={first}-{'' if last is None else last}"
        elif self._options.has_checksums:
            params["ChecksumMode"] = "ENABLED"
        try:
            answer = self._calls("get_object", whole_key, hear={"InvalidRange", "416"}, **params)
        except RefusedError as e:
            raise RemoteObjectDamagedError(f"{key} has no byte at {first}: {e}") from None
        body = answer["Body"]
        try:
            length = length_of_range(answer, first, last)
        except BaseException:
            body.close()
            raise
        return S3Body(
            body,
            length,
            doing=self._calls.doing("get_object", whole_key),
            timeout_s=self._options.call_timeout_s,
            expected_crc32c=None if "Range" in params else whole_object_crc32c(answer),
        )

    @override
    def delete(self, keys: Sequence[str]) -> None:
        whole_keys = [self._prefix + key for key in keys]
        # First the uploads: one that is completed in between is then deleted as an object.
        for key in whole_keys:
            self._abort_uploads(key)
        for start in range(0, len(whole_keys), _DELETES_MAX):
            self._delete(whole_keys[start : start + _DELETES_MAX])

    @override
    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        params: dict[str, Any] = {"Prefix": self._prefix + prefix}
        while params:
            page, params = list_page(self._calls, **params)
            for found in page.get("Contents", ()):
                key = found["Key"].removeprefix(self._prefix)
                if key:
                    modified_ms = int(found["LastModified"].timestamp() * 1000)
                    yield StoredObject(key, found["Size"], modified_ms)

    @override
    def close(self) -> None:
        self._uploader.close()
        self._calls.close()

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete in one request, and one by one the keys that the store refuses in it.

        A key that the answer does not name counts as refused: some stores answer 200 to requests
        that they do not support. Throttling and faults of the store are raised, and the caller
        repeats the whole batch.
        """
        if not self._has_batches or len(keys) == 1:
            self._delete_one_by_one(keys)
            return
        wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": False}
        errors: Sequence[dict[str, str]] = ()
        try:
            answer = self._calls("delete_objects", hear=_NO_BATCHES, refusals=True, Delete=wanted)
        except RefusedError as e:
            refused = dict.fromkeys(keys, str(e))
        else:
            errors = answer.get("Errors", ())
            codes = dict.fromkeys(keys, "not a word of it in the answer")
            codes |= {one.get("Key", ""): _NO_KEY for one in answer.get("Deleted", ())}
            codes |= {e.get("Key", ""): e.get("Code", "") for e in errors}
            refused = {
                key: codes[key] for key in keys if is_refusal(codes[key], status_in(codes[key]))
            }
        if refused:
            self._delete_one_by_one(list(refused))
            log.info(
                "the store has no batched deletes, continues without: %s",
                next(iter(refused.values())),
            )
            self._has_batches = False
        self._raise_failed([e for e in errors if e.get("Key") not in refused])

    def _delete_one_by_one(self, keys: Sequence[str]) -> None:
        for key in keys:
            with contextlib.suppress(RemoteResourceNotFoundError):  # some stores say so
                self._calls("delete_object", key)

    def _raise_failed(self, errors: Sequence[dict[str, str]]) -> None:
        """Raise the error of the first key, preferring one that a repetition will not repair."""
        failed = [
            self._calls.error(e.get("Code", ""), e.get("Message", ""), "delete", e.get("Key", ""))
            for e in errors
        ]
        failed = [e for e in failed if not isinstance(e, RemoteResourceNotFoundError)]
        failed.sort(key=lambda e: isinstance(e, RetriableRemoteStorageError))
        if failed:
            raise failed[0]

    def _abort_uploads(self, key: str) -> None:
        """Abort unfinished uploads of dead copies under this very key."""
        if not self._has_upload_listings:
            return
        params: dict[str, str] = {}
        while True:
            try:
                page = self._calls(
                    "list_multipart_uploads",
                    hear={"AccessDenied", _NO_UPLOADS},
                    refusals=True,
                    Prefix=key,
                    **params,
                )
            except RefusedError as e:
                if e.code == _NO_UPLOADS:
                    return
                log.warning(
                    "unfinished uploads cannot be listed: give the bucket a lifecycle rule that"
                    " aborts them: %s",
                    e,
                )
                self._has_upload_listings = False
                return
            for upload in page.get("Uploads", ()):
                # Uploads of other keys begin with this one, and some stores ignore the prefix.
                if upload["Key"] == key:
                    self._abort(key, upload["UploadId"])
            before, params = (
                params,
                {
                    name: page[f"Next{name}"]
                    for name in ("KeyMarker", "UploadIdMarker")
                    if page.get("IsTruncated") and page.get(f"Next{name}")
                },
            )
            if not params or params == before:  # some stores give no markers, or ignore them
                return

    def _abort(self, key: str, upload_id: str) -> None:
        try:
            self._calls("abort_multipart_upload", key, hear={"NoSuchUpload"}, UploadId=upload_id)
        except RefusedError:
            return  # completed or aborted in between
