"""The source of a copy, read in pieces of bounded size, and written to files that may accept less.

Must not know: which file system the pieces go to.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from kafka_protocol.errors import TidemarkError

WRITE_BYTES = 1 << 20
"""One write; as `bytes`, which hdfs-native accepts fastest: a memoryview costs 15 times the CPU."""


class SourceError(TidemarkError):
    """The source cannot be read; carries the error of the file."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def chunks(head: bytes, source: BinaryIO) -> Iterator[bytes]:
    """The bytes to be written, in pieces of bounded size.

    Raises:
        SourceError: `source` failed.
    """
    for at in range(0, len(head), WRITE_BYTES):
        yield head[at : at + WRITE_BYTES]
    while True:
        try:
            chunk = source.read(WRITE_BYTES)
        except OSError as e:
            raise SourceError(e) from e
        if not chunk:
            return
        yield chunk


def read_head(source: BinaryIO, size: int) -> bytes:
    """The first `size` bytes, fewer only if the source ends.

    Raises:
        SourceError: `source` failed.
    """
    parts = []
    try:
        source.seek(0)
        while size > 0 and (part := source.read(min(size, WRITE_BYTES))):
            parts.append(part)
            size -= len(part)
    except OSError as e:
        raise SourceError(e) from e
    return b"".join(parts)


def write_all(file: Any, chunk: bytes) -> None:
    """Write a chunk to a file that may accept less at once."""
    written = file.write(chunk)
    while written is not None and written < len(chunk):
        chunk = chunk[written:]
        written = file.write(chunk)
