"""Batches of aborted transactions, found by bisection, against every range in turn."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.aborted import AbortedRange, AbortedRanges
from pipeline.decode.asked import AbortedLookup

NUMBER = st.integers(-(1 << 63), (1 << 63) - 1)
RANGES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 200), st.integers(0, 9) | st.just(150)).map(
        lambda told: AbortedRange(told[0], told[1], told[1] + told[2])
    ),
    max_size=100,
)
BATCHES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 220), st.integers(0, 12)), min_size=1, max_size=60
)


@given(RANGES, BATCHES)
def test_a_batch_is_left_out_where_it_touches_a_range_of_its_producer(
    ranges: list[AbortedRange], batches: list[tuple[int, int, int]]
) -> None:
    """Ranges may overlap, also those of one producer."""
    producer, first, size = (np.array(column, np.int64) for column in zip(*batches, strict=True))
    lookup = AbortedLookup(AbortedRanges.of(ranges))
    assert len(lookup) == len(ranges)
    if not ranges:
        return
    expected = [
        any(
            one.producer_id == who and one.first_offset <= at + more and at <= one.last_offset
            for one in ranges
        )
        for who, at, more in batches
    ]
    assert lookup.touches(producer, first, first + size).tolist() == expected


@given(st.lists(st.tuples(NUMBER, NUMBER, NUMBER), max_size=5), st.integers(0, 40))
def test_what_is_packed_comes_back_in_order(
    some: list[tuple[int, int, int]], repeated: int
) -> None:
    """Whatever a damaged index says, and on both sides of the count at which it is deflated."""
    ranges = [AbortedRange(*one) for one in some] * repeated
    packed = AbortedRanges.of(ranges)
    assert len(packed) == len(ranges)
    assert sorted(packed) == sorted(ranges)
    assert [one[1:] for one in packed] == sorted(one[1:] for one in ranges)
