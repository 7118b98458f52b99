"""Aborted transactions of a Fetch answer as ranges of offsets: pure.

An answer names producer and first offset of each; where it ends is the marker in the log. A
consumer notices the marker as it walks the batches; the decoder wants ranges.
"""

from collections.abc import Iterable

from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.records.batch import Buffer, iter_batches

OPEN_END = (1 << 63) - 2
"""Where a range ends whose marker is behind the answer: it is used for this answer alone."""


def aborted_ranges(
    named: Iterable[tuple[int, int]], data: Buffer
) -> tuple[AbortedTransaction, ...]:
    """The ranges for the batches of one answer.

    Args:
        named: producer id and first offset of each aborted transaction, as answered.
        data: the answer's whole batches.

    Returns:
        One range each, up to the producer's first marker at or above the first offset; without one
        in the answer it has no end.
    """
    wanted = sorted(named, key=lambda one: one[1])
    if not wanted:
        return ()
    producers = {producer_id for producer_id, _ in wanted}
    markers = [
        (header.producer_id, header.base_offset)
        for _, header in iter_batches(data)
        if header.is_control and header.producer_id in producers
    ]
    return tuple(
        _range(
            producer_id,
            first,
            min(
                (at for owner, at in markers if owner == producer_id and at >= first), default=None
            ),
        )
        for producer_id, first in wanted
    )


def _range(producer_id: int, first: int, marker: int | None) -> AbortedTransaction:
    last = OPEN_END if marker is None else marker
    return AbortedTransaction(producer_id, first, last, last + 1)
