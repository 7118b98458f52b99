"""Every planted bug fits the tree, and the tests named for it exist; see tests/planted/run.py."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.run import A_DAYS_BUGS, rotated
from tests.support.named_tests import is_there
from tests.support.planted_bugs import (
    ROOT,
    TABLES,
    BadTable,
    Edit,
    Planted,
    edited,
    entries,
    entry,
    planted_texts,
    read_table,
    read_tables,
)

pytestmark = pytest.mark.lasts(seconds=12)


def faults(bug: Planted) -> list[str]:
    """What is wrong with an entry."""
    found = [] if bug.why.endswith(".") else [f"{bug.id}: `why` is a sentence, with its full stop"]
    for test in bug.tests:
        if not is_there(test):
            found.append(f"{bug.id}: there is no test {test}: name the one that notices now")
    try:
        planted_texts(ROOT, bug)
    except BadTable as error:
        found.append(str(error))
    return found


@pytest.mark.parametrize("table", sorted((ROOT / TABLES).glob("*.toml")), ids=lambda one: one.stem)
def test_each_planted_bug_fits_the_tree_and_names_tests_that_exist(table: Path) -> None:
    bugs = read_table(table)
    found = [fault for bug in bugs for fault in faults(bug)]
    assert not found, f"{table.name}:\n" + "\n".join(found)
    assert {bug.edits[0].file.split("/")[0] for bug in bugs} == {table.stem}
    assert list(entries(table)) == sorted(bug.id for bug in bugs)


FILES = {
    "quorum": "test_raft_quorum.py",
    "nodes": "test_nodes.py",
    "replication": "test_replication.py",
}


def test_simulation_findings_name_their_seed_in_the_table_and_on_the_page() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(r"^\| [^|]*\| [^|]+ \| ([A-Z]{2}\d\d) \| (\d+) \|$", page, re.MULTILINE)
    simulated = {bug.id: bug for bug in read_tables(ROOT) if bug.seed is not None}
    for bug in simulated.values():
        seed_holds = f"test_every_rule_holds_after_every_event[{bug.seed}]"
        assert f"tests/simulation/{FILES[bug.world]}::{seed_holds}" in bug.tests, bug.id
    assert len(rows) >= 30
    listed = [(name, str(simulated[name].seed)) for name, _ in rows]
    assert listed == rows


TWO = """class A:
    def f(self):
        return 1

    @property
    def g(self):
        return 1


def f():
    return 1
"""


def test_an_edit_is_of_the_one_place_in_its_function() -> None:
    edit = Edit("a.py", "A.f", ("        return 1",), ())
    assert edited(TWO, "a.py", [edit]) == TWO.replace("        return 1\n", "", 1)
    with pytest.raises(
        BadTable, match=r"`old` is 2 times in A of a\.py: make it .*\n        return"
    ):
        edited(TWO, "a.py", [Edit("a.py", "A", ("        return 1",), ())])
    with pytest.raises(BadTable, match=r"`old` is 0 times in a\.py"):
        edited(TWO, "a.py", [Edit("a.py", None, ("return 1",), ())])
    with pytest.raises(BadTable, match=r"there is no A\.h of a\.py: change"):
        edited(TWO, "a.py", [Edit("a.py", "A.h", ("return 1",), ())])
    with pytest.raises(BadTable, match=r"two edits of a\.py overlap"):
        edited(
            TWO, "a.py", [edit, Edit("a.py", None, ("    def f(self):", "        return 1"), ())]
        )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('old = "a"\nnew = "a"', "an edit changes nothing"),
        ('old = ""\nnew = "a"', "an edit changes nothing"),
        ('old = "a"\nneu = "b"', "no field of a planted bug is called neu"),
        ('old = "a"\nnew = "b"\nsimulated = "raft"', "no field .* called simulated"),
        ('edits = [{file = "a.py", old = "a", nwe = "b"}]', "no field .* called nwe"),
        ('edits = [{file = "a.py", old = "a", why = "b"}]', "no field .* called why"),
        ('new = "b"', "has no field 'old'"),
    ],
)
def test_a_table_that_plants_nothing_is_refused(tmp_path: Path, wrong: str, said: str) -> None:
    table = tmp_path / "a.toml"
    file = "" if "edits" in wrong else 'file = "a.py"\n'
    table.write_text(f'[A1]\nwhy = "It does a."\ntests = ["t"]\n{file}{wrong}\n')
    with pytest.raises(BadTable, match=said):
        read_table(table)
    table.write_text('[A1]\nwhy = "It does a."\ntests = []\nfile = "a.py"\nold = "a"\n')
    with pytest.raises(BadTable, match="`tests` names none"):
        read_table(table)


def git(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    git("init", "-q", cwd=tmp_path)
    (tmp_path / "tests" / "planted").mkdir(parents=True)
    (tmp_path / "tests" / "test_sums.py").write_text(
        "from sums import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    )
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    git("add", ".", cwd=tmp_path)
    return tmp_path


def plant(tree: Path, name: str, line: str, *, replaced: str = "return a + b") -> None:
    edit = Edit("sums.py", "add", (f"    {replaced}",), (f"    {line}",))
    table = tree / TABLES / "sums.toml"
    bug = Planted(name, table, f"It does {name}.", ("tests/test_sums.py",), (edit,))
    with table.open("a") as file:
        file.write(f"{entry(bug)}\n")


def run(tree: Path, *ids: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.planted.run", "--root", str(tree), *ids]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_the_runner_tells_caught_survived_and_what_does_not_apply(small_tree: Path) -> None:
    plant(small_tree, "A1", "return a - b")
    plant(small_tree, "A2", "return b + a")
    plant(small_tree, "A3", "return 3", replaced="return b")
    plant(small_tree, "A4", "syntax error")
    status, said = run(small_tree)
    assert status == 1
    assert "A1    caught by tests/test_sums.py::test_add" in said
    assert "A2    SURVIVED" in said
    assert "A3    cannot be planted: A3: `old` is 0 times in add of sums.py" in said
    assert "A4    NOT TESTED" in said
    assert "1 of 4 planted bugs are caught" in said
    assert run(small_tree, "A1")[0] == 0
    assert "no time was left for 4 others" in run(small_tree, "--seconds", "-1")[1]
    assert (small_tree / "sums.py").read_text().endswith("return a + b\n")


@pytest.mark.slow
def test_a_bug_may_be_caught_at_the_second_try(small_tree: Path, tmp_path: Path) -> None:
    """A walk that takes its way at the third run: after the plain one, and one with the bug."""
    walked = tmp_path / "walked"
    plant(small_tree, "A1", "return a - b")
    (small_tree / "tests" / "test_sums.py").write_text(
        "from pathlib import Path\nfrom sums import add\n\ndef test_add():\n"
        f"    walked = Path('{walked}')\n"
        "    times = len(walked.read_text()) if walked.exists() else 0\n"
        "    walked.write_text('x' * (times + 1))\n"
        "    assert add(1, 2) == 3 or times < 2\n"
    )
    status, said = run(small_tree)
    assert status == 0, said
    assert "once more, since they survived: 1" in said
    assert "1 of 1 planted bugs are caught" in said


@pytest.mark.slow
def test_the_runner_does_not_begin_with_tests_that_fail_anyway(small_tree: Path) -> None:
    plant(small_tree, "A1", "return a - b")
    (small_tree / "tests" / "test_sums.py").write_text("def test_nothing():\n    assert False\n")
    status, said = run(small_tree)
    assert status == 1
    assert "the tests fail without any planted bug" in said


def test_the_runner_names_the_bugs_there_are(small_tree: Path) -> None:
    plant(small_tree, "A1", "return a - b")
    status, said = run(small_tree, "B9")
    assert status == 1
    assert "B9" in said
    assert "A1" in said


def test_a_change_of_the_tree_becomes_a_planted_bug(small_tree: Path) -> None:
    plant(small_tree, "A1", "return b - a")
    git("add", ".", cwd=small_tree)
    (small_tree / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    how = ("--why", "It does A2.", "--tests", "tests/test_sums.py")
    assert run(small_tree, "--add", "A1", *how)[0] == 1
    status, said = run(small_tree, "--add", "A2", *how)
    assert status == 0, said
    assert git("diff", "--name-only", cwd=small_tree) == "tests/planted/sums.toml\n"
    first, second = read_tables(small_tree)
    assert first.edits[0].new == ("    return b - a",)
    assert second.edits == (Edit("sums.py", "add", ("    return a + b",), ("    return a - b",)),)
    assert "`git diff` names no file" in run(small_tree, "--add", "A3", *how)[1]


def test_on_each_day_other_bugs_come_first_and_none_is_left_out() -> None:
    bugs = [Planted(str(n), Path(), "", (), ()) for n in range(3 * A_DAYS_BUGS + 1)]
    days = [rotated(bugs, day) for day in range(len(bugs))]
    assert {one[0] for one in days} == set(bugs)
    assert all(set(one) == set(bugs) for one in days)
