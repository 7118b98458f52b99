"""Cuts what upkeep writes into batches that can be appended."""

from collections.abc import Iterator, Sequence
from typing import Final

from broker.coordinator.group.decision import GroupRecord

_RECORD_OVERHEAD: Final = 32
"""Bytes of a record beside its key and value, at most."""


def batches_of(records: Sequence[GroupRecord], size_max: int) -> Iterator[Sequence[GroupRecord]]:
    """Cut records, in their order, into runs of at most `size_max` bytes, but one record at least.

    Args:
        records: to be appended.
        size_max: of a run; a batch has some 60 bytes more.
    """
    start = size = 0
    for position, record in enumerate(records):
        own = len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD
        if size + own > size_max and position > start:
            yield records[start:position]
            start, size = position, 0
        size += own
    yield records[start:]
