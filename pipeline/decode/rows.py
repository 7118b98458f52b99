"""A piece of records to Arrow batches of the wanted columns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_protocol.records.batch import Buffer
from pipeline.columns import TYPES
from pipeline.decode.arrays import binary_array, constant_array, headers_array, int_array
from pipeline.decode.asked import Keep, Origin
from pipeline.decode.fields import Fields, FieldSelection, read_fields
from pipeline.decode.frames import Bools, Frames, Ints
from pipeline.decode.lanes import record_starts
from pipeline.decode.pieces import Piece
from pipeline.decode.varints import Varints, WrongRecordsError

ROWS_MAX = 1 << 20
"""Most rows of one Arrow batch: bounds the vectors that tiny records need."""

_MS_MAX = np.iinfo(np.int64).max // 1000
"""Largest timestamp (ms) of which there are microseconds."""


def read_rows(
    piece: Piece, origin: Origin, keep: Keep, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Decode the records of a piece; all are validated, also those not asked for.

    Raises:
        WrongRecordsError: some record of the piece is hostile.
    """
    frames = piece.frames
    data = Varints(piece.data)
    starts = record_starts(data, piece.start, piece.end, frames.record_count)
    bounds = np.concatenate(([0], np.cumsum(frames.record_count)))
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    having = frames.record_count > 0
    stops[bounds[1:][having] - 1] = piece.end[having]
    wanted = FieldSelection(
        *(name in schema.names for name in ("timestamp", "key", "value", "headers"))
    )
    previous = -1
    for first in range(0, len(starts), ROWS_MAX):
        window = slice(first, min(first + ROWS_MAX, len(starts)))
        fields = read_fields(data, starts[window], stops[window], wanted)
        each = np.diff(np.clip(bounds, window.start, window.stop))
        offset = _offsets(frames, each, fields, previous)
        previous = int(offset[-1])
        low = int(np.searchsorted(offset, keep.first, side="left"))
        high = int(np.searchsorted(offset, keep.last, side="right"))
        if low < high:
            rows = _Rows(piece.data, frames, each, offset, fields, slice(low, high))
            yield pa.RecordBatch.from_arrays(
                [_BUILD[name](rows, origin) for name in schema.names], schema=schema
            )


def _offsets(frames: Frames, each: Ints, fields: Fields, previous: int) -> Ints:
    """Absolute offsets; `each` says how many rows every batch has here."""
    delta = fields.offset_delta
    if (delta < 0).any() or (
        delta > np.repeat(frames.last_offset - frames.base_offset, each)
    ).any():
        raise WrongRecordsError("an offset outside the batch's own range")
    offset = np.repeat(frames.base_offset, each) + delta
    if offset[0] <= previous or (offset[1:] <= offset[:-1]).any():
        raise WrongRecordsError("offsets that do not rise")
    return offset


@dataclass(frozen=True, slots=True)
class _Rows:
    """Decoded rows, of which `kept` are wanted."""

    data: Buffer
    frames: Frames
    each: Ints
    offset: Ints
    fields: Fields
    kept: slice

    def __len__(self) -> int:
        return int(self.kept.stop - self.kept.start)


def _key(rows: _Rows, origin: Origin) -> pa.Array:
    del origin
    assert rows.fields.key is not None
    return binary_array(rows.data, rows.fields.key.of(rows.kept))


def _value(rows: _Rows, origin: Origin) -> pa.Array:
    del origin
    assert rows.fields.value is not None
    return binary_array(rows.data, rows.fields.value.of(rows.kept))


def _headers(rows: _Rows, origin: Origin) -> pa.Array:
    del origin
    assert rows.fields.headers is not None
    return headers_array(rows.data, rows.fields.headers.of(rows.kept))


def _timestamp(rows: _Rows, origin: Origin) -> pa.Array:
    del origin
    assert rows.fields.timestamp_delta is not None
    frames, kept = rows.frames, rows.kept
    base = np.repeat(frames.base_timestamp, rows.each)[kept]
    delta = rows.fields.timestamp_delta[kept]
    time_ms = base + delta
    beyond = _beyond(delta) | _beyond(base)
    if frames.append_time.any():
        append = np.repeat(frames.append_time, rows.each)[kept]
        time_ms = np.where(append, np.repeat(frames.max_timestamp, rows.each)[kept], time_ms)
        beyond &= ~append
    if (beyond | _beyond(time_ms)).any():
        raise WrongRecordsError(
            "a timestamp of more milliseconds than there are microseconds in 64 bits; without the "
            "column `timestamp` the rows can be read"
        )
    return int_array(time_ms * 1000, TYPES["timestamp"])


def _beyond(time_ms: Ints) -> Bools:
    return (time_ms > _MS_MAX) | (time_ms < -_MS_MAX)


def _timestamp_type(rows: _Rows, origin: Origin) -> pa.Array:
    del origin
    append = rows.frames.append_time[rows.each > 0]
    if append.all() or not append.any():
        return constant_array(int(append[0]), TYPES["timestampType"], len(rows))
    kinds = np.repeat(rows.frames.append_time, rows.each)[rows.kept]
    return pa.array(kinds.astype(np.int32))


_BUILD: dict[str, Callable[[_Rows, Origin], pa.Array]] = {
    "key": _key,
    "value": _value,
    "topic": lambda rows, origin: constant_array(origin.topic, TYPES["topic"], len(rows)),
    "partition": lambda rows, origin: constant_array(
        origin.partition, TYPES["partition"], len(rows)
    ),
    "offset": lambda rows, _: int_array(rows.offset[rows.kept], TYPES["offset"]),
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}
