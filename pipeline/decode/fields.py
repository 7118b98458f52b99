"""The fields of many records: every field of all records in one pass over vectors.

All fields are read and validated, whatever is asked for; only what is asked for is kept. Positions
of bytes are those in the buffer.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.decode.record_headers import HeaderSpans, read_headers
from pipeline.decode.varints import LONG_BYTES, Ints, Varints, WrongRecordsError

CHUNK_ROWS = 1 << 14
"""Rows whose vectors stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Where byte strings stand: pairs of begin and end, and which of them are null (None: none)."""

    pairs: NDArray[np.int32]
    null: NDArray[np.bool_] | None

    def of(self, rows: slice) -> "Spans":
        """Some of them."""
        return Spans(self.pairs[rows], None if self.null is None else self.null[rows])


@dataclass(frozen=True, slots=True)
class FieldSelection:
    """Which fields are kept."""

    timestamp: bool
    key: bool
    value: bool
    headers: bool


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of all records; None where not wanted."""

    offset_delta: Ints
    timestamp_delta: Ints | None
    key: Spans | None
    value: Spans | None
    headers: HeaderSpans | None


class _SpanColumn:
    """Collects spans chunk by chunk."""

    def __init__(self, rows: int) -> None:
        self.pairs = np.empty((rows, 2), np.int32)
        self.null: NDArray[np.bool_] | None = None

    def put(self, rows: slice, begin: Ints, end: Ints, null: NDArray[np.bool_] | None) -> None:
        self.pairs[rows, 0] = begin
        self.pairs[rows, 1] = end
        if null is not None:
            if self.null is None:
                self.null = np.zeros(len(self.pairs), np.bool_)
            self.null[rows] = null

    def spans(self) -> Spans:
        return Spans(self.pairs, self.null)


def read_fields(data: Varints, starts: Ints, stops: Ints, wanted: FieldSelection) -> Fields:
    """Read and validate records.

    Args:
        data: holds them.
        starts: position of each record's length.
        stops: where each record must end.
        wanted: which fields are kept.

    Raises:
        WrongRecordsError: a record's fields are not as long as the record, a byte string's length
            is below -1, or a varint is too long.
    """
    count = len(starts)
    offset_delta = np.empty(count, np.int64)
    timestamp_delta = np.empty(count, np.int64) if wanted.timestamp else None
    key = _SpanColumn(count) if wanted.key else None
    value = _SpanColumn(count) if wanted.value else None
    headers: list[HeaderSpans] = []
    for first in range(0, count, CHUNK_ROWS):
        rows = slice(first, min(first + CHUNK_ROWS, count))
        stop = stops[rows]
        _, at = data.read(starts[rows])
        at += 1  # the attributes mean nothing yet
        delta, at = data.read(at, LONG_BYTES)
        if timestamp_delta is not None:
            timestamp_delta[rows] = delta
        offset_delta[rows], at = data.read(at)
        at = _byte_string(data, at, rows, key)
        at = _byte_string(data, at, rows, value)
        number, at = data.read(at)
        found, at = read_headers(data, number, at, stop, keep=wanted.headers)
        if found is not None:
            headers.append(found)
        if (at != stop).any():
            raise WrongRecordsError("a record's length is not that of its fields")
    return Fields(
        offset_delta,
        timestamp_delta,
        key.spans() if key else None,
        value.spans() if value else None,
        HeaderSpans.joined(headers) if wanted.headers else None,
    )


def _byte_string(data: Varints, at: Ints, rows: slice, column: _SpanColumn | None) -> Ints:
    """Pass a nullable byte string of every record: positions behind it."""
    length, begin = data.read(at)
    null = None
    if length.min(initial=0) < 0:
        if length.min() < -1:
            raise WrongRecordsError("a key or value of a length below -1, which is null")
        null = length < 0
        length[null] = 0
    end = length
    end += begin
    if column is not None:
        column.put(rows, begin, end, null)
    return end
