"""Look-ups in one user partition that the random worlds meet only now and then."""

from dataclasses import replace

from rlmm.lifecycle import SegmentEntry
from rlmm.partition_view import PartitionView
from rlmm.testing import segment
from rsm_plugins.segment import SegmentState


def finished(number: int, first: int, last: int, *epochs: tuple[int, int]) -> SegmentEntry:
    metadata = segment(number, first, last, epochs)
    done = replace(metadata, state=SegmentState.COPY_SEGMENT_FINISHED)
    return SegmentEntry(done, started_seen_ms=0, finished_order=number)


def test_of_two_that_begin_before_the_epoch_the_first_finished_is_next() -> None:
    longer = finished(0, 0, 2, (1, 0), (2, 1))
    shorter = finished(1, 0, 1, (1, 0), (2, 1))
    view = PartitionView([longer, shorter])
    assert view.next_segment(2, 0) == longer.metadata
    assert view.next_segment(2, 1) is None
