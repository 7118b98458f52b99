"""The bytes of an object in an answer of S3: exactly the requested range, or an error.

Some stores answer a ranged request with 200, some with the whole object; connections end early.
None of that may become wrong bytes, so the answer is compared with the request before its first
byte is returned.
"""

import base64
import io
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from crc32c import crc32c

from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.s3.errors import LIBRARY_ERRORS, storage_error

_BLOCK_BYTES = 256 << 10
"""The library first reads into a buffer of its own, which costs almost nothing at this size."""
_BYTES_PER_CALL_TIMEOUT = 8 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


def length_of_range(answer: Mapping[str, Any], first: int, last: int | None) -> int:
    """Number of the first bytes of an answer's body that were requested.

    Args:
        answer: Of GetObject.
        first: First requested byte, inclusive.
        last: Last requested byte, inclusive; None: to the end.

    Raises:
        RemoteStorageError: The store does not serve ranges.
        RetriableRemoteStorageError: The body is something else.
    """
    content_range, length = answer.get("ContentRange"), answer.get("ContentLength")
    if content_range is None:
        # All of the object, for any request. One store (rclone) sends the range itself so, but for
        # an object that is as long as the range that would be a guess.
        if length is None or first:
            raise RemoteStorageError(
                f"the store answered a request for bytes {first}-{'' if last is None else last}"
                f" without a Content-Range: length={length}"
            )
        return int(length) if last is None else min(int(length), last + 1)
    match = _CONTENT_RANGE.fullmatch(content_range)
    if match is None:
        raise RemoteStorageError(f"the store answered with Content-Range {content_range[:100]!r}")
    got_first, got_last = int(match[1]), int(match[2])
    end = None if match[3] == "*" else int(match[3]) - 1
    wanted_last = end if last is None else last if end is None else min(last, end)
    count = got_last - got_first + 1
    if (
        got_first != first
        or (wanted_last is not None and got_last != wanted_last)
        or (length is not None and int(length) != count)
    ):
        raise RetriableRemoteStorageError(
            f"the store answered a request for bytes {first}-{'' if last is None else last} with"
            f" {content_range} length={length}"
        )
    return count


def whole_object_crc32c(answer: Mapping[str, Any]) -> int | None:
    """The CRC32C of the whole object, if the answer has it; a checksum of parts is none."""
    value = answer.get("ChecksumCRC32C")
    if not value or "-" in value or answer.get("ChecksumType") == "COMPOSITE":
        return None
    return int.from_bytes(base64.b64decode(value), "big")


class S3Body(io.RawIOBase):
    """The first `length` bytes of an answer's body.

    Read to the end, it returns its connection; closed before, it drops the connection. The time
    spent waiting for the store is bounded: `timeout_s` for every 8 MiB.
    """

    def __init__(
        self,
        body: Any,  # botocore's StreamingBody
        length: int,
        *,
        doing: str,
        timeout_s: float,
        expected_crc32c: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._body, self._left, self._doing, self._clock = body, length, doing, clock
        self._time_left_s = timeout_s * (1 + length // _BYTES_PER_CALL_TIMEOUT)
        self._expected_crc32c, self._crc32c = expected_crc32c, 0

    def readable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: Buffer
        """Fill a part of `buffer`; returns 0 at the end.

        Raises:
            RetriableRemoteStorageError: The connection failed, ended early or was too slow.
            RemoteObjectDamagedError: The whole object's bytes do not match its checksum.
        """
        if self.closed:
            raise ValueError("read of a closed stream")
        view = memoryview(buffer)[: min(self._left, _BLOCK_BYTES)]
        if not view:
            return 0
        began_s = self._clock()
        try:
            count: int = self._body.readinto(view)
        except LIBRARY_ERRORS as e:
            raise storage_error(e, self._doing) from e
        except (OSError, ValueError) as e:  # the store was closed under this stream
            raise RetriableRemoteStorageError(f"{self._doing} failed: {e}") from e
        if not count:
            raise RetriableRemoteStorageError(f"{self._doing} ended {self._left} bytes early")
        self._time_left_s -= self._clock() - began_s
        self._left -= count
        if self._left and self._time_left_s < 0:
            raise RetriableRemoteStorageError(f"{self._doing} was too slow: left={self._left}")
        if self._expected_crc32c is not None:
            self._check(view[:count])
        return count

    def _check(self, block: memoryview) -> None:
        self._crc32c = crc32c(block, self._crc32c)
        if not self._left and self._crc32c != self._expected_crc32c:
            raise RemoteObjectDamagedError(
                f"{self._doing}: CRC32C {self._crc32c} is not the one that the store keeps"
                f" ({self._expected_crc32c})"
            )

    def close(self) -> None:
        """Return the connection, or drop it if a part of the body was not read."""
        if not self.closed:
            self._body.close()
        super().close()
