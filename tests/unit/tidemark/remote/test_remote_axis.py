from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidemark.remote.axis import ASCII, Stretch, bar, column_of, joined, ruler

stretches = st.tuples(st.integers(0, 300), st.integers(0, 60)).map(
    lambda pair: Stretch(pair[0], pair[0] + pair[1])
)


def draw(axis: Stretch, width: int, *covered: tuple[int, int]) -> str:
    return bar([Stretch(*one) for one in covered], axis, width, ASCII)


def test_a_column_is_whole_partly_or_not_covered() -> None:
    assert draw(Stretch(0, 100), 10, (0, 25), (90, 100)) == "##+......#"


def test_one_offset_among_billions_is_seen() -> None:
    assert draw(Stretch(0, 10**15), 10, (5 * 10**14, 5 * 10**14 + 1)) == ".....+...."


def test_fewer_offsets_than_columns() -> None:
    assert draw(Stretch(7, 9), 10, (7, 8)) == "#####....."


def test_an_empty_axis_has_nothing_on_it() -> None:
    assert draw(Stretch(5, 5), 4, (0, 9)) == "...."


@given(st.lists(stretches), st.integers(0, 200), st.integers(1, 200), st.integers(1, 90))
def test_the_bar_says_of_each_column_what_counting_says(
    covered: list[Stretch], first: int, length: int, width: int
) -> None:
    axis = Stretch(first, first + length)
    inside = {offset for one in covered for offset in range(one.first, one.end)}
    for column, ink in enumerate(bar(covered, axis, width, ASCII)):
        begin = first + column * length // width
        end = max(begin + 1, first + (column + 1) * length // width)
        count = sum(offset in inside for offset in range(begin, end))
        assert ink == ("." if not count else "#" if count == end - begin else "+")


@given(st.lists(stretches))
def test_joining_keeps_the_offsets_and_leaves_no_neighbours(covered: list[Stretch]) -> None:
    out = joined(covered)
    assert {o for one in out for o in range(*one)} == {o for one in covered for o in range(*one)}
    assert all(one.end < two.first for one, two in pairwise(out))


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 200))
def test_every_offset_has_a_column(offset: int, first: int, length: int, width: int) -> None:
    assert 0 <= column_of(offset, Stretch(first, first + length), width) < width


def test_marks_that_fall_together_stand_side_by_side() -> None:
    letters, pointers = ruler([(0, "S"), (1, "T"), (99, "E")], Stretch(0, 100), 10, "v")
    assert letters == "ST       E"
    assert pointers == "v        v"
