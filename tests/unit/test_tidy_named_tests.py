"""Tests that pages name as proof exist, under the names that the pages give."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:[\w/]+/)?(?:test_\w+\.py|testing\.py)|\.\.\.)?::(test_\w+)")
LONE_FILE = re.compile(r"`(?:[\w/]+/)?(test_\w+\.py)`")
ALONE = re.compile(r"`(test_\w+)`")


def names_by_file() -> dict[str, set[str]]:
    files = [*ROOT.glob("tests/**/test_*.py"), ROOT / "rlmm" / "testing.py"]
    found = {
        str(path.relative_to(ROOT)) if path.name == "testing.py" else path.name: named_in(path)
        for path in files
    }
    promises = (named_in(path) for path in ROOT.glob("rsm_plugins/contract/*.py"))
    return found | {"rsm_plugins/testing.py": set().union(*promises)}  # it inherits them all


def named_in(path: Path) -> set[str]:
    return set(re.findall(r"def (test_\w+)", path.read_text()))


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
    assert len(rows) == 197
    states = {"done", "partly", "later", "left out"}
    assert [row[0] for row in rows if not row[4].startswith(tuple(states))] == []
    assert [row[0] for row in rows if row[4].startswith("done") and "`" not in row[5]] == []
