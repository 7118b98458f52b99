"""Finds where each record of many batches begins; a long one is walked from several places.

Where a record begins in the middle of a batch is unknown, so it is guessed: a few records that
follow each other there, with rising offsets, are taken for true. No guess is trusted: the walk
from a place must arrive exactly at the next one, and the walk from the true beginning of the batch
proves them all. Where it does not, the caller walks step by step.
"""

import numpy as np

from pipeline.decode.frames import Bools
from pipeline.decode.varints import LONG_BYTES, Ints, Varints, WrongRecordsError

RECORD_BYTES_MIN = 7
"""A record's length, attributes, two deltas, two nulls and the count of its headers."""

LANES = 256
"""Walks at once: a step over so many costs little more than over one."""

ROWS_MIN = 64
"""Records for which a place of its own is worth the search."""

_HOPS = 3
_WINDOW_RECORDS = 2


def lane_starts(data: Varints, start: Ints, end: Ints, count: Ints) -> Ints | None:
    """Positions of all records' lengths, ascending; None where the guesses are no good.

    Arguments are those of `record_starts`, and `count` is no more than the bytes can hold.
    """
    total = int(count.sum())
    rows = max(ROWS_MIN, total // LANES)
    if not total or int(count.max()) < 8 * rows:
        return None
    begin, goal = _places(data, start, end, count, rows)
    found, size = [], 0
    try:
        while len(begin):
            found.append(begin)
            size += len(begin)
            if size > total:
                return None
            begin = begin + data.ways(begin)
            going = begin < goal
            if not going.all():
                if (begin > goal).any():
                    return None
                begin, goal = begin[going], goal[going]
    except WrongRecordsError:
        return None
    starts = np.sort(np.concatenate(found))
    each = np.searchsorted(starts, end) - np.searchsorted(starts, start)
    return starts if (each == count).all() else None


def _places(data: Varints, start: Ints, end: Ints, count: Ints, rows: int) -> tuple[Ints, Ints]:
    """Where walks begin, and where each must end."""
    parts = np.maximum(count // rows, 1)
    batch = np.repeat(np.arange(len(count)), parts)
    number = np.arange(len(batch)) - np.repeat(np.cumsum(parts) - parts, parts)
    size = end - start
    near = start[batch] + size[batch] * number // parts[batch]
    inner = np.flatnonzero(number)
    # the average of all keeps windows to a small part of the bytes, whatever single batches claim
    record_bytes = int(size.sum()) // int(count.sum())
    places = _guess(data, near[inner], end[batch[inner]], record_bytes)
    having = count > 0
    begin = np.unique(np.concatenate((start[having], places)))
    of = np.searchsorted(start[having], begin, side="right") - 1
    goal = np.append(begin[1:], 0)
    last = np.append(of[1:] != of[:-1], True)
    goal[last] = end[having][of[last]]
    return begin, goal


def _guess(data: Varints, near: Ints, end: Ints, record_bytes: int) -> Ints:
    """For each place, the first position behind it at which records seem to begin, if any."""
    window = _WINDOW_RECORDS * record_bytes + 32
    every = (near[:, None] + np.arange(window)).ravel()
    # the attributes behind a length of one or two bytes are zero, and zeros are rare
    zeros = every[data.bytes.take(every, mode="clip") == 0]
    first = np.unique(np.concatenate([zeros - size for size in (1, 2)]))
    lane = np.searchsorted(near, first, side="right") - 1
    inside = lane >= 0
    first, lane = first[inside], lane[inside]
    limit = end[lane]
    at, previous = first, np.full(len(first), -1, np.int64)
    for _ in range(_HOPS):
        over = at == limit
        stop, delta, fine = _seeming_record(data, at)
        fine &= (delta > previous) & (stop <= limit)
        fine |= over
        first, lane, limit = first[fine], lane[fine], limit[fine]
        at, previous = np.where(over, at, stop)[fine], delta[fine]
    _, where = np.unique(lane, return_index=True)
    return first[where]


def _seeming_record(data: Varints, at: Ints) -> tuple[Ints, Ints, Bools]:
    """Where a record would end, its offset delta, and whether its fields fit its length."""
    way, body, fine = data.try_read(at)
    stop = body + way
    fine = _both(fine, (way > 0) & (data.bytes.take(body, mode="clip") == 0))
    _, at, good = data.try_read(body + 1, LONG_BYTES)
    fine = _both(good, fine)
    delta, at, good = data.try_read(at)
    fine = _both(good, fine)
    for _ in range(2):  # key and value
        length, at, good = data.try_read(at)
        fine = _both(good, fine & (length >= -1))
        at = np.minimum(at + np.maximum(length, 0), stop)
    count, at, good = data.try_read(at)
    return stop, delta, _both(good, fine & np.where(count, (count > 0) & (at < stop), at == stop))


def _both(read: Bools | None, fine: Bools) -> Bools:
    return fine if read is None else fine & read


def record_starts(data: Varints, start: Ints, end: Ints, count: Ints) -> Ints:
    """Positions of all records' lengths, batch by batch.

    A step costs about the same for one batch as for a hundred. Batches stand by falling record
    count, so that those that are through drop off the end of the vector.

    Args:
        data: holds the records of all batches.
        start: where the records of each batch begin.
        end: where they must end.
        count: how many there must be.

    Raises:
        WrongRecordsError: lengths, counts and bytes contradict each other.
    """
    if (count * RECORD_BYTES_MIN > end - start).any():
        raise WrongRecordsError("more records than its bytes can hold")
    if ((count == 0) & (start != end)).any():
        raise WrongRecordsError("bytes, and a count of no records")
    if (found := lane_starts(data, start, end, count)) is not None:
        return found
    row = np.cumsum(count) - count
    starts = np.empty(int(count.sum()), np.int64)
    order = np.argsort(-count, kind="stable")
    at, to, falling = start[order], row[order], count[order]
    done = 0
    for steps, width in _phases(falling):
        cursor, target = at[:width], to[:width]
        for _ in range(steps - done):
            starts[target] = cursor
            cursor += data.ways(cursor)
            target += 1
        done = steps
    if (at != end[order]).any():
        raise WrongRecordsError("its records do not fill the batch exactly")
    return starts


def _phases(falling: Ints) -> list[tuple[int, int]]:
    """How long so many batches have records: (records each, batches), by rising record count."""
    counts, widths = np.unique(-falling, return_index=False, return_counts=True)
    total = np.cumsum(widths)
    return [
        (-int(count), int(width)) for count, width in zip(counts[::-1], total[::-1], strict=True)
    ]
