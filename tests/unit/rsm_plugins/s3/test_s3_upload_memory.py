"""How much memory uploads take, however many there are."""

import io
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import Any, ClassVar

import pytest

from rsm_plugins.s3 import upload as s3_upload
from rsm_plugins.s3.upload import S3Uploader

PART = 1 << 20
UPLOADS = 6
SLOTS = 2


class Buffer(bytearray):
    """A buffer that is counted while it lives."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity

    alive: ClassVar[weakref.WeakSet["Buffer"]] = weakref.WeakSet()
    most = 0

    def __init__(self, size: int) -> None:
        super().__init__(size)
        Buffer.alive.add(self)
        Buffer.most = max(Buffer.most, len(Buffer.alive))


class Calls:
    """A store that lets parts in two by two, so that every upload has its share of the slots."""

    def __init__(self) -> None:
        self._two = Barrier(SLOTS)

    def __call__(self, operation: str, key: str = "", **params: Any) -> Any:
        if operation == "upload_part":
            try:
                self._two.wait(0.05)
            except BrokenBarrierError:
                self._two.reset()
        answer = {"UploadId": key, "ETag": "e", "ResponseMetadata": {}}
        return {**answer, "ContentLength": 5 * PART}

    def check_deadline(self) -> None:
        """It is never over."""


def test_uploads_share_as_many_buffers_as_there_are_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_upload, "bytearray", Buffer, raising=False)
    uploader = S3Uploader(
        Calls(),  # type: ignore[arg-type]
        part_bytes=PART,
        concurrency=SLOTS,
        write_params={},
        has_checksums=False,
        abort_uploads=lambda _: None,
    )
    with ThreadPoolExecutor(UPLOADS) as pool:
        list(pool.map(lambda n: uploader.put(f"k{n}", io.BytesIO(bytes(5 * PART))), range(UPLOADS)))
    uploader.close()
    assert 0 < Buffer.most <= SLOTS
