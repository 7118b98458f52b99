"""Rows of a partition in Parquet files, one a day."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.columns import schema_of
from pipeline.jobs.day_files import DayFiles, FileLimits, FileNames
from pipeline.jobs.values import NO_DAY, DataFile
from pipeline.jobs.write_task import COLUMNS
from tests.support.export.places import MemoryPlace

DAY_US = 86_400_000_000
SCHEMA = schema_of(COLUMNS)
NAMES = FileNames("staging", ".parquet", "run", "t7")


class CountingPlace(MemoryPlace):
    """Knows how many files were open at once, at most."""

    def __init__(self) -> None:
        super().__init__()
        self.open = self.open_max = 0

    @contextmanager
    def writing(self, path: str) -> Iterator[BinaryIO]:
        with super().writing(path) as file:
            self.open += 1
            self.open_max = max(self.open, self.open_max)
            yield file
        self.open -= 1


def batch(first: int, times_us: list[int], value: bytes = b"v") -> pa.RecordBatch:
    count = len(times_us)
    columns = [
        pa.array([None] * count, pa.binary()),
        pa.array([value] * count, pa.binary()),
        pa.array(["orders"] * count),
        pa.array([3] * count, pa.int32()),
        pa.array(range(first, first + count), pa.int64()),
        pa.array(times_us, SCHEMA.field("timestamp").type),
        pa.array([0] * count, pa.int32()),
        pa.array([None] * count, SCHEMA.field("headers").type),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def read(place: MemoryPlace, file: DataFile) -> pa.Table:
    return pq.read_table(io.BytesIO(place.stored[f"staging/{file.staged}"]))


def test_a_late_row_goes_to_its_own_day() -> None:
    place = MemoryPlace()
    files = DayFiles(place, NAMES, 3)
    files.add(batch(10, [5 * DAY_US, 5 * DAY_US + 1, 4 * DAY_US, 6 * DAY_US - 1]))
    files.add(batch(14, [-1]))
    found = sorted(files.close(), key=lambda one: one.day)
    assert [(one.day, one.rows, one.first, one.last) for one in found] == [
        ("1969-12-31", 1, 14, 14),
        ("1970-01-05", 1, 12, 12),
        ("1970-01-06", 3, 10, 13),
    ]
    assert [read(place, one)["offset"].to_pylist() for one in found] == [[14], [12], [10, 11, 13]]
    assert found[2].name == "day=1970-01-06/00003-00000000000000000010-1970-01-06-run.parquet"
    assert (found[2].from_us, found[2].to_us) == (5 * DAY_US, 6 * DAY_US - 1)
    assert all(one.size_bytes == len(place.stored[f"staging/{one.staged}"]) for one in found)


def test_times_that_no_calendar_has_are_in_a_partition_without_a_day() -> None:
    place = MemoryPlace()
    files = DayFiles(place, NAMES, 3)
    last_us = 253_402_300_800_000_000  # the first microsecond of the year 10000
    first_us = -62_135_596_800_000_000  # that of the year 1
    files.add(batch(0, [last_us - 1, last_us, first_us, first_us - 1, last_us + 9 * DAY_US]))
    done = {tuple(read(place, one)["offset"].to_pylist()): one for one in files.close()}
    assert {offsets: one.day for offsets, one in done.items()} == {
        (0,): "9999-12-31",
        (2,): "0001-01-01",
        (1, 4): NO_DAY,
        (3,): NO_DAY,
    }
    assert all(one.name.startswith(f"day={one.day}/") for one in done.values())
    assert len({one.name for one in done.values()}) == 4


def test_no_rows_make_no_file() -> None:
    place = MemoryPlace()
    files = DayFiles(place, NAMES, 3)
    files.add(batch(0, []))
    assert files.close() == []
    assert place.stored == {}


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_limits_every_row_is_in_one_file(seed: int) -> None:
    random = Random(seed)
    place = CountingPlace()
    limits = FileLimits(
        file_bytes=random.choice([80_000, 200_000]),
        group_bytes=random.choice([1, 2_000, 9_000]),
        waiting_bytes=random.choice([1, 10_000, 10**9]),
        open_files=random.randint(1, 4),
    )
    files = DayFiles(place, NAMES, 3, limits)
    at, expected = 0, {}
    for _ in range(30):
        times = [random.randint(0, 5 * DAY_US) for _ in range(random.randint(0, 40))]
        files.add(batch(at, times, random.randbytes(200)))
        expected |= {at + place: time for place, time in enumerate(times)}
        at += len(times)
    done = files.close()
    assert len({one.name for one in done}) == len(done)
    found = {}
    for one in done:
        table = read(place, one)
        times = table["timestamp"].cast(pa.int64()).to_pylist()
        offsets = table["offset"].to_pylist()
        assert offsets == sorted(offsets)
        assert (one.rows, one.first, one.last) == (len(offsets), offsets[0], offsets[-1])
        assert (one.from_us, one.to_us) == (min(times), max(times))
        assert len({time // DAY_US for time in times}) == 1
        assert not set(offsets) & set(found)
        found |= dict(zip(offsets, times, strict=True))
        assert one.size_bytes <= limits.file_bytes
    assert found == expected
    assert place.open_max <= limits.open_files


def test_alternating_days_have_one_file_each_while_rows_fit_in_memory() -> None:
    place = CountingPlace()
    files = DayFiles(place, NAMES, 3)
    for number in range(20):
        files.add(batch(number * 60, [day * DAY_US for day in range(60)]))
    assert len(files.close()) == 60
    assert place.open_max <= FileLimits().open_files


def test_rows_that_wait_are_bounded_also_where_each_is_a_piece_of_its_own() -> None:
    place = CountingPlace()
    limits = FileLimits(waiting_bytes=1 << 20, open_files=8)
    files = DayFiles(place, NAMES, 3, limits)
    for number in range(20):
        files.add(batch(number * 60, [day * DAY_US for day in range(60)]))
        waiting = [one for file in files._days.values() for one in file.waiting]
        assert len(waiting) <= 128
    done = files.close()
    assert sum(one.rows for one in done) == 1200
    assert len(done) < 600
    assert place.open_max == 8
