"""Where each record of many batches begins: all batches advance together, a record a step.

A step costs about the same for one batch as for a hundred. Batches stand by falling record count,
so that those that are through drop off the end of the vector.
"""

import numpy as np

from pipeline.decode.lanes import lane_starts
from pipeline.decode.varints import Ints, Varints, WrongRecordsError

RECORD_BYTES_MIN = 7
"""A record's length, attributes, two deltas, two nulls and the count of its headers."""


def record_starts(data: Varints, start: Ints, end: Ints, count: Ints) -> Ints:
    """Positions of all records' lengths, batch by batch.

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
