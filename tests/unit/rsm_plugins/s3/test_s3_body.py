"""An answer of S3 is the range that was asked for, or an error; never other bytes."""

import io
from typing import Any

import pytest
from crc32c import crc32c

from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.s3.body import S3Body, length_of_range, whole_object_crc32c


@pytest.mark.parametrize(
    ("first", "last", "content_range", "length", "expected"),
    [
        (5, 9, "bytes 5-9/100", 5, 5),
        (5, 9, "bytes 5-9/*", 5, 5),
        (5, 9, "bytes 5-9/100", None, 5),
        (5, 900, "bytes 5-99/100", 95, 95),  # clipped at the end
        (5, None, "bytes 5-99/100", 95, 95),
        (0, None, None, 100, 100),
        (0, 9, None, 100, 10),  # all of it: the first bytes are the range
        (0, 900, None, 100, 100),
    ],
)
def test_a_fitting_answer_is_taken(
    first: int, last: int | None, content_range: str | None, length: int | None, expected: int
) -> None:
    answer = {"ContentRange": content_range, "ContentLength": length}
    assert length_of_range(answer, first, last) == expected


@pytest.mark.parametrize(
    ("first", "last", "content_range", "length"),
    [
        (5, 9, "bytes 4-8/100", 5),
        (5, 9, "bytes 5-8/100", 4),
        (5, 9, "bytes 5-10/100", 6),
        (5, 9, "bytes 5-9/100", 4),
        (5, None, "bytes 5-98/100", 94),
        (5, 9, "lines 5-9/100", 5),
        (5, 9, None, 100),  # all of it, from its first byte
        (5, 9, None, 5),  # the range, or an object that is as long
        (0, 9, None, None),
    ],
)
def test_an_answer_to_another_question_is_refused(
    first: int, last: int | None, content_range: str | None, length: int | None
) -> None:
    answer = {"ContentRange": content_range, "ContentLength": length}
    with pytest.raises(RemoteStorageError):
        length_of_range(answer, first, last)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"ChecksumCRC32C": "AAAAAQ=="}, 1),
        ({"ChecksumCRC32C": "AAAAAQ==", "ChecksumType": "FULL_OBJECT"}, 1),
        ({"ChecksumCRC32C": "AAAAAQ==", "ChecksumType": "COMPOSITE"}, None),
        ({"ChecksumCRC32C": "AAAAAQ==-2"}, None),
        ({}, None),
    ],
)
def test_only_a_checksum_of_the_whole_object_is_compared(
    answer: dict[str, str], expected: int | None
) -> None:
    assert whole_object_crc32c(answer) == expected


def body(sent: bytes, length: int, **more: Any) -> S3Body:
    return S3Body(io.BytesIO(sent), length, doing="get", timeout_s=1, **more)


def test_no_more_is_read_than_was_asked_for() -> None:
    assert io.BufferedReader(body(b"0123456789", 4)).read() == b"0123"


def test_a_body_that_ends_early_is_retriable() -> None:
    with pytest.raises(RetriableRemoteStorageError, match="2 bytes early"):
        body(b"01234567", 10).readall()


def test_a_whole_object_is_compared_with_the_stores_checksum() -> None:
    assert body(b"0123", 4, expected_crc32c=crc32c(b"0123")).readall() == b"0123"
    with pytest.raises(RemoteObjectDamagedError):
        body(b"0123", 4, expected_crc32c=crc32c(b"0124")).readall()


def test_a_body_that_drips_is_given_up() -> None:
    now_s = [0.0]

    class Drip(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            now_s[0] += 0.6
            return super().readinto(memoryview(buffer)[:1])

    slow = S3Body(Drip(b"0123"), 4, doing="get", timeout_s=1, clock=lambda: now_s[0])
    with pytest.raises(RetriableRemoteStorageError, match="too slow"):
        slow.readall()


def test_time_of_a_caller_between_two_reads_is_its_own() -> None:
    now_s = [0.0]
    stream = S3Body(io.BytesIO(b"0123"), 4, doing="get", timeout_s=1, clock=lambda: now_s[0])
    assert stream.read(2) == b"01"
    now_s[0] += 3_600
    assert stream.read(2) == b"23"
