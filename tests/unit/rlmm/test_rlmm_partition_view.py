"""Look-ups in one user partition that the random worlds meet only now and then."""

from dataclasses import replace
from random import Random

import pytest

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


@pytest.mark.parametrize("seed", range(40))
def test_segments_with_aborts_are_found_as_by_a_walk(seed: int) -> None:
    rng, view = Random(seed), PartitionView()
    live: dict[bytes, SegmentEntry] = {}
    for number in range(60):
        first = rng.randrange(200)
        entry = finished(number, first, first + rng.choice([0, 9, 40]), (1, 0))
        metadata = replace(entry.metadata, txn_index_empty=rng.random() < 0.5)
        if rng.random() < 0.2:
            metadata = replace(metadata, state=SegmentState.DELETE_SEGMENT_STARTED)
        live[metadata.id.id] = replace(entry, metadata=metadata)
        view.put(metadata.id.id, live[metadata.id.id])
        if rng.random() < 0.3:
            gone = rng.choice(sorted(live))
            del live[gone]
            view.put(gone, None)
        offset, after, found = rng.randrange(250), None, list[bytes]()
        while some := view.aborting_segments(offset, after, rng.randrange(1, 5)):
            found += [one.id.id for one in some]
            after = some[-1].start_offset, some[-1].id.id
        walked = [
            one.metadata
            for one in live.values()
            if one.metadata.state is SegmentState.COPY_SEGMENT_FINISHED
            and not one.metadata.txn_index_empty
            and one.metadata.end_offset >= offset
        ]
        walked.sort(key=lambda one: (one.start_offset, one.id.id))
        assert found == [one.id.id for one in walked]
