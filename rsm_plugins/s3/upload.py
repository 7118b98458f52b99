"""Writing objects to S3: in one request up to a part's size, above it in parts, several at a time.

Every byte is read once from its source, and the CRC32C of each part and of the whole is computed on
the way. The store compares the received part with the first, and its stored object is compared with
the second. An upload that fails is aborted before the error is raised. If it was completed and the
store holds something else, its object is deleted. An upload whose process died is aborted by the
deletion of its key.

Memory: at most `concurrency` buffers of a part's size, over all uploads of a store. A slot is the
permission for one buffer, and a used buffer is kept for the next part.
"""

import base64
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import LifoQueue
from typing import Any, BinaryIO

from crc32c import crc32c

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.layout.objects import ObjectFacts
from rsm_plugins.s3.body import whole_object_crc32c
from rsm_plugins.s3.client import S3Calls
from rsm_plugins.s3.errors import CHECKSUM_WAY_OUT, RefusedError
from rsm_plugins.settings import PREFIX

log = logging.getLogger(__name__)

_BLOCK_BYTES = 256 << 10
_SMALL_BYTES = 64 << 10
"""Up to this size a body is plain bytes, which `S3Calls` sends at once."""


class S3Uploader:
    """Uploads objects. Thread-safe."""

    def __init__(
        self,
        calls: S3Calls,
        *,
        part_bytes: int,
        concurrency: int,
        write_params: Mapping[str, Any],
        has_checksums: bool,
        abort_uploads: Callable[[str], None],
    ) -> None:
        """`abort_uploads` aborts every unfinished upload of a key."""
        self.calls, self.part_bytes = calls, part_bytes
        self.pool = ThreadPoolExecutor(concurrency, thread_name_prefix="s3-upload")
        self.slots: LifoQueue[bytearray | None] = LifoQueue()
        for _ in range(concurrency):
            self.slots.put(None)  # no buffer so far
        self._write_params, self._has_checksums = write_params, has_checksums
        self._abort_uploads = abort_uploads

    def put(self, key: str, source: BinaryIO, **params: Any) -> ObjectFacts:
        """Write an object; `params` are for objects that fit one request.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError, RefusedError: As of `S3Calls`.
        """
        size_bytes = source.seek(0, os.SEEK_END)
        source.seek(0)
        if size_bytes > self.part_bytes:
            return self._put_in_parts(key, source)
        buffer = self.slots.get()
        try:
            body = _filled(memoryview(buffer or bytearray(size_bytes))[:size_bytes], source)
            facts = ObjectFacts(len(body), crc32c(body))
            answer = self.calls(
                "put_object",
                key,
                Body=_sendable(body, self.calls),
                **self.checksum(facts.crc32c),
                **self._write_params,
                **params,
            )
        finally:
            self.slots.put(buffer)
        kept = whole_object_crc32c(answer)
        if kept is not None and kept != facts.crc32c:
            raise self._not_kept("put_object", key)
        return facts

    def checksum(self, value: int) -> dict[str, Any]:
        """A CRC32C as a parameter of a call; empty if checksums are off."""
        if not self._has_checksums:
            return {}
        return {"ChecksumCRC32C": base64.b64encode(value.to_bytes(4, "big")).decode()}

    def close(self) -> None:
        """End the threads, after the parts that are being sent."""
        self.pool.shutdown()

    def _put_in_parts(self, key: str, source: BinaryIO) -> ObjectFacts:
        params: dict[str, Any] = dict(self._write_params)
        if self._has_checksums:
            params |= {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"}
        begun = self._begin(key, params)
        upload_id = begun["UploadId"]
        upload = _PartsUpload(self, key, upload_id, source)
        try:
            parts = upload.send_parts()
        except BaseException:
            self._abort(key, upload_id)
            raise
        try:
            answer = self._complete(key, upload_id, parts, upload.facts)
        except BaseException:
            if not self._abort(key, upload_id):  # it may be complete, with its answer lost
                self._delete(key)
            raise
        try:
            self._check(key, answer, upload.facts)
        except BaseException:
            self._delete(key)
            raise
        if begun["ResponseMetadata"].get("RetryAttempts"):
            # An earlier attempt may have begun another upload, with its answer lost. If it cannot
            # be aborted now, this copy has failed: the deletion of a failed copy aborts all.
            self._abort_uploads(key)
        return upload.facts

    def _begin(self, key: str, params: Mapping[str, Any]) -> Any:
        try:
            return self.calls("create_multipart_upload", key, refusals=True, **params)
        except RefusedError as e:
            message = (
                f"{self.calls.doing('create_multipart_upload', key)} failed: {e}; if the store has"
                f" no uploads in parts, set {PREFIX}upload.part.size.bytes above segment.bytes"
            )
            if self._has_checksums:
                message += f"; {CHECKSUM_WAY_OUT}"
            raise RemoteStorageError(message) from None

    def _complete(
        self, key: str, upload_id: str, parts: list[dict[str, Any]], facts: ObjectFacts
    ) -> Any:
        """Complete an upload; None: it is over, with an unknown answer."""
        params: dict[str, Any] = self.checksum(facts.crc32c)
        if self._has_checksums:
            params["ChecksumType"] = "FULL_OBJECT"
        try:
            return self.calls(
                "complete_multipart_upload",
                key,
                hear={"NoSuchUpload"},
                UploadId=upload_id,
                MultipartUpload={"Parts": parts},
                **params,
            )
        except RefusedError:
            # An earlier attempt completed it and its answer was lost; or another process aborted
            # it.
            return None

    def _check(self, key: str, answer: Any, facts: ObjectFacts) -> None:
        """Compare the stored object of an upload, which is over, with the bytes that were sent."""
        if answer is not None and whole_object_crc32c(answer) == facts.crc32c:
            return
        mode: dict[str, Any] = {"ChecksumMode": "ENABLED"} if self._has_checksums else {}
        try:
            head = self.calls("head_object", key, **mode)
        except RemoteResourceNotFoundError:
            raise self._not_kept("complete_multipart_upload", key) from None
        kept = whole_object_crc32c(head)
        is_same = answer is not None if kept is None else kept == facts.crc32c
        if not is_same or head.get("ContentLength") != facts.size_bytes:
            raise self._not_kept("complete_multipart_upload", key)

    def _not_kept(self, operation: str, key: str) -> RetriableRemoteStorageError:
        message = (
            f"{self.calls.doing(operation, key)}: the store does not keep what was sent, or says so"
        )
        if self._has_checksums:
            message += f"; {CHECKSUM_WAY_OUT}"
        return RetriableRemoteStorageError(message)

    def _abort(self, key: str, upload_id: str) -> bool:
        """Abort an upload; returns whether it was there, or may still be."""
        try:
            self.calls("abort_multipart_upload", key, hear={"NoSuchUpload"}, UploadId=upload_id)
        except RefusedError:
            return False
        except RemoteStorageError as e:
            log.warning("an unfinished upload is left to the deletion of its key: %s", e)
        return True

    def _delete(self, key: str) -> None:
        """Delete the object of an upload that is reported as failed."""
        try:
            self.calls("delete_object", key)
        except RemoteResourceNotFoundError:
            return
        except RemoteStorageError as e:
            log.warning("an object of a failed upload is left to the deletion of its key: %s", e)


class _PartsUpload:
    """One object that is sent in parts; the caller's thread reads them, the pool's send them.

    Attributes:
        facts: Size and CRC32C of the bytes read so far.
    """

    def __init__(self, uploader: S3Uploader, key: str, upload_id: str, source: BinaryIO) -> None:
        self._uploader, self._key, self._upload_id = uploader, key, upload_id
        self._source = source
        self._failed = threading.Event()
        self.facts = ObjectFacts(0, 0)

    def send_parts(self) -> list[dict[str, Any]]:
        """Send every part; when this returns or raises, none is being sent any more."""
        sent: list[Future[dict[str, Any]]] = []
        try:
            while (taken := self._take()) is not None:
                sent.append(self._uploader.pool.submit(self._send, len(sent) + 1, *taken))
        finally:
            wait(sent)
        return [future.result() for future in sent]

    def _take(self) -> tuple[bytearray, memoryview] | None:
        """A buffer (with its slot) and the next part in it; None if nothing is left to send."""
        slots = self._uploader.slots
        buffer = slots.get()
        try:
            buffer = buffer or bytearray(self._uploader.part_bytes)
            part = memoryview(b"")
            if not self._failed.is_set():
                part = _filled(memoryview(buffer), self._source)
        except BaseException:
            slots.put(buffer)
            raise
        if not part:
            slots.put(buffer)
            return None
        self.facts = ObjectFacts(self.facts.size_bytes + len(part), crc32c(part, self.facts.crc32c))
        return buffer, part

    def _send(self, number: int, buffer: bytearray, part: memoryview) -> dict[str, Any]:
        calls = self._uploader.calls
        try:
            checksum = self._uploader.checksum(crc32c(part))
            answer = calls(
                "upload_part",
                self._key,
                UploadId=self._upload_id,
                PartNumber=number,
                Body=_sendable(part, calls),
                **checksum,
            )
        except BaseException:
            self._failed.set()
            raise
        finally:
            self._uploader.slots.put(buffer)
        # Some stores give no ETag, and then want none.
        etag = {"ETag": answer["ETag"]} if answer.get("ETag") else {}
        return {"PartNumber": number, **etag, **checksum}


def _filled(view: memoryview, source: BinaryIO) -> memoryview:
    """Read until `view` is full or the source ends; returns the filled part."""
    count = 0
    readinto = getattr(source, "readinto", None)
    while count < len(view):
        if readinto is not None:
            got = readinto(view[count:])
        else:
            data = source.read(len(view) - count)
            got = len(data)
            view[count : count + got] = data
        if not got:
            break
        count += got
    return view[:count]


def _sendable(data: memoryview, calls: S3Calls) -> "bytes | _Body":
    return bytes(data) if len(data) <= _SMALL_BYTES else _Body(data, calls)


class _Body:
    """Bytes to be sent, as a file: in blocks, so that the deadline is checked between them.

    Sent at once, all of a part would have to leave within one time-out of the socket.
    """

    def __init__(self, data: memoryview, calls: S3Calls) -> None:
        self._data, self._calls, self._position = data, calls, 0

    def read(self, size: int = -1) -> memoryview:
        """The next block; the library asks for 16 KiB, and each call has a cost."""
        self._calls.check_deadline()
        block = self._data[self._position : self._position + max(size, _BLOCK_BYTES)]
        self._position += len(block)
        return block

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset in bytes; returns the new position."""
        self._position = offset + (0, self._position, len(self._data))[whence]
        return self._position

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position
