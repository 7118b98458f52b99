"""Tables within the width of a terminal; one line a row where there is none."""

from hypothesis import given
from hypothesis import strategies as st

from tidemark.cluster.table import fields, plain, table

ROWS = [("orders", 0, 12, "rdkafka"), ("a-very-long-name-of-a-topic", 10, None, "-")]
COLUMNS = ("TOPIC", "PARTITION", "LAG", "CLIENT-ID")


def test_numbers_stand_to_the_right_and_nothing_behind_the_last_word() -> None:
    assert table(COLUMNS, ROWS, None) == (
        "TOPIC                        PARTITION  LAG  CLIENT-ID\n"
        "orders                               0   12  rdkafka\n"
        "a-very-long-name-of-a-topic         10    -  -\n"
    )


def test_the_widest_cells_are_folded_on_a_terminal() -> None:
    assert table(COLUMNS, ROWS, 40) == (
        "TOPIC          PARTITION  LAG  CLIENT-ID\n"
        "orders                 0   12  rdkafka\n"
        "a-very-long-n         10    -  -\n"
        "ame-of-a-topi\n"
        "c\n"
    )


def test_without_rows_the_names_of_the_columns_are_shown() -> None:
    assert table(COLUMNS, [], 80) == "TOPIC  PARTITION  LAG  CLIENT-ID\n"


@given(
    st.lists(st.tuples(st.text(max_size=200), st.integers(), st.text(max_size=90)), max_size=4),
    st.integers(48, 120),
)
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, int, str]], width: int) -> None:
    rows = [(a, number % 10**9, b) for a, number, b in rows]
    text = table(("GROUP", "LAG", "CONSUMER-ID"), rows, width)
    assert all(len(line) <= width for line in text.splitlines())


def test_what_does_not_print_is_escaped() -> None:
    """A group may be called like an instruction to the terminal."""
    assert plain("a\x1b[2J\n\u202eb é") == "a\\x1b[2J\\n\\u202eb é"
    assert "\x1b" not in table(("GROUP",), [("\x1b[2J",)], 80) + fields([("GROUP", "\x1b")], 80)


def test_fields_continue_in_the_next_line_and_long_ones_after_a_comma() -> None:
    pairs = [("Topic", "tides"), ("Count", 1), ("Configs", "retention.ms=1,segment.bytes=22")]
    assert fields(pairs, 30) == (
        "Topic: tides  Count: 1\n  Configs: retention.ms=1,\n    segment.bytes=22\n"
    )
    assert fields([("Topic", "t" * 20)], 12) == "Topic: ttttt\n    tttttttt\n    ttttttt\n"
    assert fields(pairs, None) == (
        "Topic: tides  Count: 1  Configs: retention.ms=1,segment.bytes=22\n"
    )
