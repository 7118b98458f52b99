"""Each row of the table of bad inputs has a test, here or elsewhere, or waits for a capability."""

import re
from collections import Counter
from pathlib import Path

from tests.support.bad_input.table import CASES, ELSEWHERE, LATER, ROWS

ROOT = Path(__file__).parents[3]


def test_no_row_is_without_a_test() -> None:
    with_cases = {one.row for one in CASES}
    assert not set(ROWS) - with_cases - set(ELSEWHERE) - set(LATER)
    assert not set(LATER) & (with_cases | set(ELSEWHERE)), "no longer later"


def test_no_case_has_the_id_of_another() -> None:
    assert [name for name, count in Counter(one.id for one in CASES).items() if count > 1] == []


def test_own_rows_are_told_from_those_of_the_list() -> None:
    assert not {one.row for one in CASES if one.row.startswith("N")} - set(ROWS)


def test_the_named_tests_are_there() -> None:
    for row, named in ELSEWHERE.items():
        path, name = named.split("::")
        assert re.search(rf"def {name}\(", (ROOT / path).read_text()), (row, named)
