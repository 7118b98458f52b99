"""Batches into a file or a stream, in one of three formats.

A file gets its name only when it is complete: until then it is `.<name>.<random>.part` beside it.
A pipe has no name, so what failed never has a valid end there.
"""

import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.dump.jsonl import write_lines
from runtime.override import override

FORMATS = ("jsonl", "parquet", "arrow")
_PLAIN = ("key", "value")
"""Values that seldom repeat: Parquet's dictionaries would only cost time."""
_TORN: Final = b"\xff\xff\xff\xff\x08\x00\x00\x00"
"""The head of a message of 8 bytes that never come: readers of a stream end with an error.

Most take the end of a pipe for the end of the stream, so a marker that is missing says nothing.
"""


def write_batches(
    kind: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: BinaryIO, *, is_file: bool
) -> Iterator[int]:
    """Write all batches; yields the number of rows of each as it was written.

    Args:
        kind: of `FORMATS`.
        batches: what is written.
        schema: of each of them.
        out: where to.
        is_file: `arrow` is then the format for files (`.arrow`), else the one for streams.
    """
    if kind == "jsonl":
        yield from write_lines(batches, out.write)
        return
    outlet = _Outlet(out)
    with _writer(kind, schema, outlet, is_file=is_file) as writer:
        try:
            for batch in batches:
                writer.write_batch(batch)
                yield batch.num_rows
        except BaseException:
            outlet.is_shut = True
            if kind == "arrow" and not is_file:
                with suppress(OSError):  # the reader may be gone; the first error is what counts
                    out.write(_TORN)
            raise


def first_rows(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """So many rows of all, at least one; no batch after the last of them is asked for."""
    for batch in batches:
        yield batch.slice(0, count)
        count -= batch.num_rows
        if count <= 0:
            return


class _Outlet(io.RawIOBase):
    """Where a writer writes to; once shut it drops the rest, as writers end a file in any case."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.is_shut = False

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, data: Any) -> int:
        if not self.is_shut:
            self._out.write(data)
        return len(data)


def _writer(
    kind: str, schema: pa.Schema, out: io.RawIOBase, *, is_file: bool
) -> "pq.ParquetWriter | pa.ipc.RecordBatchFileWriter":
    if kind == "parquet":
        dictionaries = [name for name in schema.names if name not in (*_PLAIN, "headers")]
        return pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=dictionaries)
    return (pa.ipc.new_file if is_file else pa.ipc.new_stream)(out, schema)


@contextmanager
def complete_or_nothing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name, and the place of an older one, at the end of the block.

    A path that is no plain file (a pipe, `/dev/stdout`) is written to as it is.

    Raises:
        OSError: it cannot be written; nothing is left.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as out:
            yield out
        return
    try:
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:  # it names the temporary file, which the user did not name
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with open(fd, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        _open_to_others(name)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _open_to_others(name: str) -> None:
    """Give a temporary file, which is private, the rights of any new file."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(name, 0o666 & ~mask)
