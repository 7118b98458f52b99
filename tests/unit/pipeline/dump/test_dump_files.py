import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.columns import TYPES, schema_of
from pipeline.dump.files import complete_or_nothing, first_rows, write_batches
from pipeline.errors import DataLossError

NAMES = ("key", "offset", "headers", "timestamp")
ROWS = [
    {"key": b"k", "offset": 1, "headers": [{"key": "h", "value": None}], "timestamp": 5_000},
    {"key": None, "offset": 2, "headers": None, "timestamp": None},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=schema_of(NAMES))


def written(kind: str, *, is_file: bool = True) -> bytes:
    out = io.BytesIO()
    out.close, close = lambda: None, out.close  # type: ignore[method-assign]
    counts = write_batches(kind, iter([BATCH, BATCH]), BATCH.schema, out, is_file=is_file)
    assert list(counts) == [2, 2]
    data = out.getvalue()
    close()
    return data


def test_parquet_keeps_rows_and_types() -> None:
    found = pq.read_table(io.BytesIO(written("parquet")))
    assert found.equals(pa.Table.from_batches([BATCH, BATCH]))


def test_arrow_is_a_file_or_a_stream() -> None:
    assert pa.ipc.open_file(written("arrow")).read_all().num_rows == 4
    assert pa.ipc.open_stream(written("arrow", is_file=False)).read_all().num_rows == 4


def failing() -> Iterator[pa.RecordBatch]:
    yield BATCH
    raise DataLossError("gone")


@pytest.mark.parametrize(
    ("kind", "is_file"), [("arrow", False), ("arrow", True), ("parquet", True)]
)
def test_what_failed_never_reads_like_what_is_complete(kind: str, is_file: bool) -> None:
    """A pipe has no name that it takes at the end."""
    out = io.BytesIO()
    with pytest.raises(DataLossError):
        list(write_batches(kind, failing(), BATCH.schema, out, is_file=is_file))
    assert not out.closed
    read = {
        ("arrow", False): lambda: pa.ipc.open_stream(out.getvalue()).read_all(),
        ("arrow", True): lambda: pa.ipc.open_file(out.getvalue()),
        ("parquet", True): lambda: pq.read_table(io.BytesIO(out.getvalue())),
    }[kind, is_file]
    with pytest.raises(pa.ArrowInvalid):
        read()
    if not is_file:
        with pytest.raises(pl.exceptions.ComputeError):
            pl.read_ipc_stream(io.BytesIO(out.getvalue()))


def test_the_error_is_told_though_nobody_reads_any_more() -> None:
    class Gone(io.BytesIO):
        is_gone = False

        def write(self, data: Any) -> int:
            if self.is_gone:
                raise BrokenPipeError
            return super().write(data)

    out = Gone()
    counts = write_batches("arrow", failing(), BATCH.schema, out, is_file=False)
    next(counts)
    out.is_gone = True
    with pytest.raises(DataLossError):
        next(counts)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_no_rows_are_a_file_with_a_schema(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    schema = schema_of(tuple(TYPES))
    with complete_or_nothing(path) as out:
        assert list(write_batches(kind, iter([]), schema, out, is_file=True)) == []
    read = pq.read_table(path) if kind == "parquet" else pa.ipc.open_file(path).read_all()
    assert (read.num_rows, read.schema) == (0, schema)


def test_a_file_takes_its_name_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"old")
    mask = os.umask(0o022)
    try:
        with complete_or_nothing(path) as out:
            out.write(b"new")
            assert path.read_bytes() == b"old"
    finally:
        os.umask(mask)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["rows"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"old")
    with pytest.raises(pa.ArrowInvalid), complete_or_nothing(path) as out:
        list(write_batches("arrow", iter([BATCH.select(["key"])]), BATCH.schema, out, is_file=True))
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["rows"]


def test_a_directory_that_is_not_there_is_told_by_the_name_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "no" / "rows"
    with pytest.raises(FileNotFoundError) as refused, complete_or_nothing(path):
        pass
    assert refused.value.filename == str(path)


def test_what_is_no_plain_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    with complete_or_nothing(Path(os.devnull)) as out:
        out.write(b"away")
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (2, [2]), (3, [2, 1]), (9, [2, 2])])
def test_no_more_rows_are_taken_than_asked_for(count: int, sizes: list[int]) -> None:
    taken = list[int]()

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(2):
            taken.append(number)
            yield BATCH

    assert [one.num_rows for one in first_rows(batches(), count)] == sizes
    assert taken == [*range(len(sizes))]
