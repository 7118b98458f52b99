"""Writes rows of one partition to Parquet files, one a day of the record's timestamp (UTC).

Memory is bounded: rows wait until they fill a row group, or until all that wait are too many, and
only so many files are open at a time. A day whose rows only wait has no file yet, and does not
count. A late record goes to a new file of its day; no file is ever written to again.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.jobs.place import Place
from pipeline.jobs.values import NO_DAY, DataFile

_DAY_US: Final = 86_400_000_000
_DICTIONARY: Final = ("topic", "partition", "timestampType")
_STATISTICS: Final = ("partition", "offset", "timestamp")
_ENCODED_PER_RAW: Final = 1.05
_FOOTER_BYTES: Final = 1 << 16
_PIECE_BYTES: Final = 8 << 10
"""Memory of a piece of a batch beside its rows, as measured: a piece may have one row."""
_FIRST_DAY: Final = int(np.datetime64("0001-01-01", "D").astype(np.int64))
_LAST_DAY: Final = int(np.datetime64("9999-12-31", "D").astype(np.int64))
RAW_VALUE: Final = "value_raw"
"""The column that keeps the bytes of values that did not parse."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Sizes.

    Attributes:
        file_bytes: a file is closed before it would grow above this.
        group_bytes: rows of a row group, uncompressed.
        waiting_bytes: memory of the rows of all days that wait for their row group.
        open_files: most files that are written at the same time.
    """

    file_bytes: int = 512 << 20
    group_bytes: int = 64 << 20
    waiting_bytes: int = 128 << 20
    open_files: int = 32


@dataclass(frozen=True, slots=True)
class FileNames:
    """How files of a task are called.

    Attributes:
        directory: where they are written.
        suffix: what their names end with there.
        run: the run, in every name.
        attempt: differs between attempts of one task.
    """

    directory: str
    suffix: str
    run: str
    attempt: str


class DayFiles:
    """The files of one task; `close` ends them and says what they hold."""

    def __init__(
        self, place: Place, names: FileNames, partition: int, limits: FileLimits | None = None
    ) -> None:
        self._place, self._names, self._partition = place, names, partition
        self._limits = limits or FileLimits()
        self._days: dict[int, _OpenFile] = {}  # the one that got rows last comes last
        self._held_bytes = 0
        self._done: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows, ascending by offset."""
        if batch.num_rows == 0:
            return
        times = batch.column(batch.schema.get_field_index("timestamp"))
        days = np.floor_divide(pc.cast(times, pa.int64()).to_numpy(), _DAY_US)
        days = np.clip(
            days, _FIRST_DAY - 1, _LAST_DAY + 1
        )  # beyond them there are two, without names
        if days[0] == days[-1] and days.min() == days.max():
            self._add(int(days[0]), batch)
            return
        for day in np.unique(days):
            self._add(int(day), batch.filter(pa.array(days == day)))

    def close(self) -> list[DataFile]:
        """End all files; those that are open first, so that there never are more of them."""
        for day in sorted(self._days, key=lambda day: not self._days[day].is_open):
            self._close(day)
        return self._done

    def _add(self, day: int, batch: pa.RecordBatch) -> None:
        file = self._days.pop(day, None) or _OpenFile(day, batch.schema)
        self._days[day] = file
        before = file.held_bytes
        file.waiting.append(batch)
        file.waiting_bytes += batch.nbytes
        self._held_bytes += file.held_bytes - before
        if file.waiting_bytes >= self._limits.group_bytes:
            self._write(file)
        elif self._held_bytes > self._limits.waiting_bytes:
            self._write_the_largest()

    def _write_the_largest(self) -> None:
        """Until an eighth is free: a search at each batch would be long with many days."""
        for file in sorted(self._days.values(), key=lambda one: one.held_bytes, reverse=True):
            if self._held_bytes <= self._limits.waiting_bytes * 7 // 8:
                return
            if file.waiting:  # else it was closed to make room for another
                self._write(file)

    def _write(self, file: "_OpenFile") -> None:
        """Write what waits as a row group; in a new file if this one would grow too large."""
        grown = file.written_bytes + file.waiting_bytes * _ENCODED_PER_RAW + _FOOTER_BYTES
        if file.rows and grown > self._limits.file_bytes:
            self._done.append(file.end(self._names, self._partition))
            fresh = _OpenFile(file.day, file.schema, file.waiting, file.waiting_bytes)
            self._days[file.day] = file = fresh
        opened = [day for day, one in self._days.items() if one.is_open]
        if not file.is_open and len(opened) >= self._limits.open_files:
            self._close(opened[0])
        self._held_bytes -= file.held_bytes
        file.write(self._place, self._names, self._partition)

    def _close(self, day: int) -> None:
        if self._days[day].waiting:
            self._write(self._days[day])
        self._done.append(self._days.pop(day).end(self._names, self._partition))


@dataclass(slots=True)
class _OpenFile:
    """One file that is written, or will be once a row group is full."""

    day: int
    schema: pa.Schema
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0
    unparsed: int = 0
    first: int = 0
    last: int = 0
    from_us: int = 0
    to_us: int = 0
    name: str = ""
    _context: ExitStack = field(default_factory=ExitStack)
    _sink: BinaryIO | None = None
    _writer: Any = None

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def held_bytes(self) -> int:
        return self.waiting_bytes + len(self.waiting) * _PIECE_BYTES

    @property
    def written_bytes(self) -> int:
        return 0 if self._sink is None else self._sink.tell()

    def write(self, place: Place, names: FileNames, partition: int) -> None:
        table = pa.Table.from_batches(self.waiting)
        self.waiting, self.waiting_bytes = [], 0
        self._note(table)
        if self._writer is None:
            self.name = f"{partition:05}-{self.first:020}-{_day(self.day)}-{names.run}"
            path = f"{names.directory}/{self._staged(names)}"
            self._sink = self._context.enter_context(place.writing(path))
            self._writer = pq.ParquetWriter(
                self._sink,
                self.schema,
                compression="zstd",
                use_dictionary=[*_DICTIONARY, *_leaves(self.schema)],
                write_statistics=list(_STATISTICS),
                store_schema=True,
            )
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def end(self, names: FileNames, partition: int) -> DataFile:
        assert self._sink is not None
        self._writer.close()
        size = self._sink.tell()
        self._context.close()
        day = _day(self.day)
        return DataFile(
            staged=self._staged(names),
            name=f"day={day}/{self.name}.parquet",
            partition=partition,
            day=day,
            rows=self.rows,
            size_bytes=size,
            unparsed=self.unparsed,
            first=self.first,
            last=self.last,
            from_us=self.from_us,
            to_us=self.to_us,
        )

    def _staged(self, names: FileNames) -> str:
        return f"{self.name}-{names.attempt}{names.suffix}"

    def _note(self, table: pa.Table) -> None:
        offsets = table.column("offset")
        times = pc.min_max(pc.cast(table.column("timestamp"), pa.int64())).as_py()
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        self.first = min(self.first, first) if self.rows else first
        self.last = max(self.last, last) if self.rows else last
        self.from_us = min(self.from_us, times["min"]) if self.rows else times["min"]
        self.to_us = max(self.to_us, times["max"]) if self.rows else times["max"]
        self.rows += table.num_rows
        if RAW_VALUE in table.schema.names:
            self.unparsed += table.num_rows - table.column(RAW_VALUE).null_count


def _leaves(schema: pa.Schema) -> list[str]:
    """Parquet's names of what decoded values consist of, as far as structs reach."""
    value = schema.field("value").type if "value" in schema.names else pa.null()
    return list(_below("value", value)) if pa.types.is_struct(value) else []


def _below(name: str, kind: pa.DataType) -> Iterator[str]:
    if not pa.types.is_struct(kind):
        yield name
        return
    for one in kind:
        yield from _below(f"{name}.{one.name}", one.type)


def _day(number: int) -> str:
    """A day as `2026-11-23`; readers would take `day` for text if one of them were no date."""
    return str(np.datetime64(number, "D")) if _FIRST_DAY <= number <= _LAST_DAY else NO_DAY
