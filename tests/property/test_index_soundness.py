"""Checks of whole indexes at the speed of C, against a twin that looks at one entry at a time."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.files import offset_index, time_index
from kafka_protocol.files.offset_index import rises

SIZE = 1_000
OFFSETS = st.lists(st.tuples(st.integers(-2, 30), st.integers(-2, SIZE + 2)), max_size=6)
STAMPS = st.lists(st.tuples(st.integers(-2, 5), st.integers(0, 5)), max_size=6)


def sound_offsets(entries: Sequence[tuple[int, int]]) -> bool:
    before = (-1, 0)
    for entry in entries:
        if entry[0] <= before[0] or not before[1] < entry[1] < SIZE:
            return False
        before = entry
    return True


@given(OFFSETS | OFFSETS.map(sorted), st.binary(max_size=9))
def test_an_offset_index_is_sound_where_the_twin_says_so(
    entries: list[tuple[int, int]], tail: bytes
) -> None:
    buf = b"".join(offset_index.pack_entry(*entry) for entry in entries)
    assert offset_index.is_sound(buf, SIZE) == sound_offsets(entries)
    assert list(zip(*offset_index.columns(buf), strict=True)) == entries
    if len(tail) % offset_index.ENTRY_SIZE:
        assert not offset_index.is_sound(buf + tail, SIZE)


@given(STAMPS | STAMPS.map(sorted), st.binary(max_size=13))
def test_a_time_index_is_sound_where_the_twin_says_so(
    entries: list[tuple[int, int]], tail: bytes
) -> None:
    buf = b"".join(time_index.pack_entry(*entry) for entry in entries)
    assert time_index.is_sound(buf) == all(a < b for a, b in pairwise(entries))
    if len(tail) % time_index.ENTRY_SIZE:
        assert not time_index.is_sound(buf + tail)


@given(st.integers(0, 9_000), st.integers(0, 9_000))
def test_one_step_back_is_found_wherever_it_is(length: int, at: int) -> None:
    values = list(range(length))
    assert rises(values)
    if 0 < at < length:
        values[at] = values[at - 1]
        assert not rises(values)
