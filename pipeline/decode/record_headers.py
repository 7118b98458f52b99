"""The headers of many records: the n-th header of all records that have one in one step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.primitives import read_zigzag
from pipeline.decode.varints import Ints, Varints, WrongRecordsError

HEADER_BYTES_MIN = 2
"""The lengths of an empty name and of a null."""

_STEPS_MAX = 64
_LANES_MIN = 16
"""Behind so many steps, fewer records than this are read header by header: a step over a few
records costs more than a loop over them, and one record may hold half a million headers."""


@dataclass(frozen=True, slots=True)
class HeaderSpans:
    """Headers of many records, record by record.

    Attributes:
        count: headers of each record.
        name: pairs of begin and end of each header's name.
        value: likewise.
        null: which values are null.
    """

    count: NDArray[np.int32]
    name: NDArray[np.int32]
    value: NDArray[np.int32]
    null: NDArray[np.bool_]

    @classmethod
    def empty(cls, records: int, headers: int) -> "HeaderSpans":
        """Spans to be filled in."""
        return cls(
            np.zeros(records, np.int32),
            np.empty((headers, 2), np.int32),
            np.empty((headers, 2), np.int32),
            np.zeros(headers, np.bool_),
        )

    def of(self, records: slice) -> "HeaderSpans":
        """Those of some records; `records` has no step."""
        first = int(self.count[: records.start].sum())
        part = slice(first, first + int(self.count[records].sum()))
        return HeaderSpans(self.count[records], self.name[part], self.value[part], self.null[part])

    @classmethod
    def joined(cls, parts: Sequence["HeaderSpans"]) -> "HeaderSpans":
        """One behind the other."""
        if not parts:
            return cls.empty(0, 0)
        return cls(
            np.concatenate([part.count for part in parts]),
            np.concatenate([part.name for part in parts]),
            np.concatenate([part.value for part in parts]),
            np.concatenate([part.null for part in parts]),
        )


def read_headers(
    data: Varints, count: Ints, at: Ints, stop: Ints, *, keep: bool
) -> tuple[HeaderSpans | None, Ints]:
    """Read and validate the headers of records.

    Args:
        data: holds them.
        count: how many headers each record claims.
        at: where the first header of each record begins.
        stop: where each record must end.
        keep: whether spans are wanted.

    Returns:
        Spans if wanted, and the positions behind the headers.

    Raises:
        WrongRecordsError: they do not fit, or a length is negative (but for a null value's).
    """
    having = np.flatnonzero(count)
    if not len(having):
        return (HeaderSpans.empty(len(count), 0) if keep else None), at
    number = count[having]
    if (number < 0).any() or (number * HEADER_BYTES_MIN > stop[having] - at[having]).any():
        raise WrongRecordsError("more headers than its bytes can hold")
    spans = None
    if keep:
        spans = HeaderSpans.empty(len(count), int(number.sum()))
        spans.count[:] = count
    # by falling number: records that are through drop off the end of the vector
    order = np.argsort(-number, kind="stable")
    falling, limit = number[order], stop[having[order]]
    cursor = at[having[order]]
    target = (np.cumsum(number) - number)[order]
    done, width = 0, len(order)
    while done < falling[0] and (width >= _LANES_MIN or done < _STEPS_MAX):
        width = int(np.searchsorted(-falling, -done, side="left"))
        cursor, limit, target = cursor[:width], limit[:width], target[:width]
        behind = _one_header(data, cursor, target + done, limit, spans)
        cursor[:] = behind
        at[having[order[:width]]] = behind
        done += 1
    for index in np.flatnonzero(falling > done).tolist():
        row = having[order[index]]
        put = slice(int(target[index]) + done, int(target[index] + falling[index]))
        at[row] = _many_headers(data, int(at[row]), int(limit[index]), put, spans)
    return spans, at


def _one_header(
    data: Varints, at: Ints, target: Ints, limit: Ints, spans: HeaderSpans | None
) -> Ints:
    """Read one header of each record; the positions behind them."""
    length, name = data.read(at)
    if (length < 0).any():
        raise WrongRecordsError("a header's name of a negative length")
    name_end = name + length
    length, value = data.read(name_end)
    if (length < -1).any():
        raise WrongRecordsError("a header's value of a length below -1, which is null")
    value_end = value + np.maximum(length, 0)
    if (value_end > limit).any():
        raise WrongRecordsError("a header is longer than its record")
    if spans is not None:
        spans.name[target, 0] = name
        spans.name[target, 1] = name_end
        spans.value[target, 0] = value
        spans.value[target, 1] = value_end
        spans.null[target] = length < 0
    return value_end


def _many_headers(data: Varints, at: int, limit: int, put: slice, spans: HeaderSpans | None) -> int:
    """Read the remaining headers of one record; the position behind them."""
    places = []
    try:
        for _ in range(put.start, put.stop):
            length, name = read_zigzag(data.data, at)
            if length < 0:
                raise WrongRecordsError("a header's name of a negative length")
            length, value = read_zigzag(data.data, name_end := name + length)
            if length < -1:
                raise WrongRecordsError("a header's value of a length below -1, which is null")
            at = value + max(length, 0)
            if at > limit:
                raise WrongRecordsError("a header is longer than its record")
            if spans is not None:
                places.append((name, name_end, value, at, length))
    except (IndexError, MalformedMessageError) as cause:
        raise WrongRecordsError("a header is cut or malformed") from cause
    if spans is not None:
        table = np.array(places, np.int64)
        spans.name[put], spans.value[put] = table[:, :2], table[:, 2:4]
        spans.null[put] = table[:, 4] < 0
    return at
