"""Batches into a file or a stream, in one of three formats.

A file gets its name only when it is complete: until then it is `.<name>.<random>.part` beside it.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.dump.jsonl import write_lines

FORMATS = ("jsonl", "parquet", "arrow")
_PLAIN = ("key", "value")
"""Values that seldom repeat: Parquet's dictionaries would only cost time."""


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
    with _writer(kind, schema, out, is_file=is_file) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield batch.num_rows


def _writer(
    kind: str, schema: pa.Schema, out: BinaryIO, *, is_file: bool
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
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
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
