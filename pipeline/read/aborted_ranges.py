"""Aborted transactions of a Fetch answer as ranges of offsets: pure.

An answer names producer and first offset of each; where it ends is the marker in the log. A
consumer notices the marker as it walks the batches; the decoder wants ranges.
"""

from bisect import bisect_left
from collections.abc import Iterable

from kafka_protocol.records.batch import Buffer, iter_batches
from pipeline.aborted import AbortedRange, AbortedRanges

OPEN_END = (1 << 63) - 2
"""Where a range ends whose marker is behind the answer: it is used for this answer alone."""


def aborted_ranges(named: Iterable[tuple[int, int]], data: Buffer) -> AbortedRanges:
    """The ranges for the batches of one answer.

    Args:
        named: producer id and first offset of each aborted transaction, as answered.
        data: the answer's whole batches.

    Returns:
        One range each, up to the producer's first marker at or above the first offset; without one
        in the answer it has no end.
    """
    wanted = list(named)
    if not wanted:
        return AbortedRanges()
    markers: dict[int, list[int]] = {producer_id: [] for producer_id, _ in wanted}
    for _, header in iter_batches(data):
        if header.is_control and header.producer_id in markers:
            markers[header.producer_id].append(header.base_offset)
    return AbortedRanges.of(
        AbortedRange(producer_id, first, _end(markers[producer_id], first))
        for producer_id, first in wanted
    )


def _end(markers: list[int], first: int) -> int:
    """The first marker at or above `first`; they ascend, as batches do."""
    at = bisect_left(markers, first)
    return markers[at] if at < len(markers) else OPEN_END
