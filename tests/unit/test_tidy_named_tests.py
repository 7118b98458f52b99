"""Tests have short names; those that pages name as proof exist under the names given there."""

import re
from pathlib import Path

from tests.support.named_tests import names_by_file

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:[\w/]+/)?(?:test_\w+\.py|testing\.py)|\.\.\.)?::(test_\w+)")
LONE_FILE = re.compile(r"`(?:[\w/]+/)?(test_\w+\.py)`")
ALONE = re.compile(r"`(test_\w+)`")
NAME_CHARACTERS_MAX = 70


def test_no_test_has_a_name_of_more_than_70_characters() -> None:
    """A name is condition and result; a report or a table cuts a longer one off."""
    names = names_by_file().items()
    assert [
        f"{file}::{name}"
        for file, tests in names
        for name in sorted(tests)
        if len(name) > NAME_CHARACTERS_MAX
    ] == []


def test_pages_name_tests_that_exist() -> None:
    known = names_by_file()
    everything = set().union(*known.values())
    wrong = []
    for page in sorted(ROOT.glob("docs/**/*.md")):
        file = ""
        text = page.read_text()
        for named, test in NAMED.findall(text):
            if named not in ("", "..."):
                file = named if named.endswith("/testing.py") else Path(named).name
            if named == "...":
                found = test in everything
            else:
                found = test in known.get(file, set())
            if not found:
                wrong.append(f"{page.name}: {file}::{test}")
        wrong += [f"{page.name}: {name}" for name in LONE_FILE.findall(text) if name not in known]
        wrong += [f"{page.name}: {name}" for name in ALONE.findall(text) if name not in everything]
    assert wrong == []


def test_every_promise_says_where_it_stands_and_what_is_done_names_a_test() -> None:
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        for line in (ROOT / "docs" / "kip-matrix.md").read_text().splitlines()
        if re.match(r"\| K\d+-\d+ \|", line)
    ]
    assert len(rows) == 239
    states = {"done", "partly", "later", "excluded"}
    assert [row[0] for row in rows if not row[4].startswith(tuple(states))] == []
    assert [row[0] for row in rows if row[4].startswith("done") and "`" not in row[5]] == []


def stories() -> set[str]:
    """Ids of stories in docs/tiering-write-orders.md, first column; `D1 to D4` are four."""
    page = (ROOT / "docs" / "tiering-write-orders.md").read_text()
    found = set()
    for cell in re.findall(r"^\| ((?:D|H|K)\d+\b[^|]*)\|", page, re.MULTILINE):
        found |= set(re.findall(r"\b[DHK]\d+\b", cell))
        for kind, first, last in re.findall(r"\b([DHK])(\d+) to [DHK](\d+)\b", cell):
            found |= {f"{kind}{number}" for number in range(int(first), int(last))}
    return found


def test_an_id_in_a_tests_name_is_a_row_of_a_page() -> None:
    matrix = (ROOT / "docs" / "kip-matrix.md").read_text()
    known = stories() | {"S3"} | set(re.findall(r"^\| (K\d+-\d+) \|", matrix, re.MULTILINE))
    names = set().union(*names_by_file().values())
    named = {
        (name, found.upper().replace("_", "-"))
        for name in names
        for found in re.findall(r"_(k\d{3}_\d\d|[a-z]\d+)(?=_)", name)
    }
    assert [name for name, found in sorted(named) if found not in known] == []
