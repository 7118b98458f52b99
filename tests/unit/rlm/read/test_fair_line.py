"""The line in which readers take turns, against what each of them is owed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rlm.read.line import READERS_MAX, STALE_MAX, FairLine


def taken(line: FairLine[str], count: int) -> str:
    return "".join(str(line.take()) for _ in range(count))


def test_one_reader_is_served_in_order_and_an_empty_line_gives_nothing() -> None:
    line = FairLine[str]()
    for item in "abc":
        line.add("one", item)
    assert len(line) == 3
    assert taken(line, 3) == "abc"
    assert line.take() is None
    assert len(line) == 0


def test_a_reader_that_comes_new_is_served_within_a_round() -> None:
    line = FairLine[str]()
    for item in "abcdefgh":
        line.add("many", item)
    assert taken(line, 3) == "abc"
    line.add("new", "N")
    line.add("other", "O")
    assert set(taken(line, 3)) == {"d", "N", "O"}


def test_silence_saves_nothing_up() -> None:
    line = FairLine[str]()
    line.add("silent", "s")
    for item in "abcdef":
        line.add("busy", item)
    taken(line, 6)
    for item in "STUV":
        line.add("silent", item)
    for item in "ghi":
        line.add("busy", item)
    assert sorted(taken(line, 4), key=str.lower) != sorted("STUV")


def test_a_reader_with_large_items_has_as_many_fewer() -> None:
    line = FairLine[str]()
    for n in range(40):
        line.add("small", f"s{n}", 1)
        line.add("large", f"l{n}", 4)
    assert Counter(str(line.take())[0] for _ in range(25)) == {"s": 20, "l": 5}


def test_what_an_item_cost_beyond_what_was_said_counts_against_its_reader() -> None:
    line = FairLine[str]()
    for item in "abc":
        line.add("one", item)
        line.add("two", item.upper())
    assert set(taken(line, 2)) == set("aA")
    line.charge("one", 2)
    assert taken(line, 4) == "BCbc"


def test_who_leaves_without_having_been_served_keeps_its_turn() -> None:
    line = FairLine[str]()
    for item in "abc":
        line.add("one", item)
    line.add("two", "x")
    assert taken(line, 1) == "a"
    line.remove("two", "x")
    assert len(line) == 2
    line.add("three", "y")
    line.add("two", "z")
    assert taken(line, 1) == "z"


def test_readers_that_come_and_go_leave_nothing_behind() -> None:
    line = FairLine[str]()
    for number in range(2 * READERS_MAX):
        line.add(str(number), "x")
        line.remove(str(number), "x")
        line.remove(str(number), "x")
    assert len(line) == 0
    assert len(line._heap) <= STALE_MAX
    for number in range(2 * READERS_MAX):
        line.add(str(number), "x")
        line.take()
    assert len(line._ends) <= READERS_MAX


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), min_size=1, max_size=60))
def test_no_reader_that_waits_throughout_gets_less_than_others_by_more_than_one_item(
    items: list[tuple[int, int]],
) -> None:
    """Each is taken once, and what two waiting readers got differs by their largest items."""
    line, costs = FairLine[int](), dict[int, tuple[int, int]]()
    for number, (reader, cost) in enumerate(items):
        line.add(str(reader), number, cost)
        costs[number] = (reader, cost)
    left, got, order = Counter(reader for reader, _ in items), Counter[int](), list[int]()
    while left:
        number = line.take()
        assert number is not None
        reader, cost = costs[number]
        order.append(number)
        got[reader] += cost
        for other in left:
            assert got[reader] - got[other] <= 2 * 9
        left[reader] -= 1
        left += Counter()
    assert sorted(order) == list(range(len(items)))
    assert line.take() is None
