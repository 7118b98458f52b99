"""Every planted bug fits the tree, and the tests named for it exist; see tests/planted/run.py."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "tests" / "planted" / "run.py"
PATCHES = sorted((ROOT / "tests" / "planted").glob("*.patch"))

_spec = importlib.util.spec_from_file_location("planted_runner", RUNNER)
assert _spec is not None
assert _spec.loader is not None
runner = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runner)


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_a_planted_bug_applies_and_names_tests_that_exist(path: Path) -> None:
    planted = runner.read_patch(path)
    assert runner.git_apply(ROOT, path, "--check") == ""
    assert planted.bug.endswith("."), "a sentence"
    for test in planted.tests:
        file, *names = re.sub(r"\[.*", "", test).split("::")
        assert (ROOT / file).exists(), test
        text = (ROOT / file).read_text() if names else ""
        for name in names:
            assert re.search(rf"^ *(?:async )?(?:def|class) {name}\b", text, re.MULTILINE), test


SIMULATED = re.compile(r"^Simulate: (core|raft)\nSeed: (\d+)$", re.MULTILINE)
FILES = {"core": "test_raft_core.py", "raft": "test_raft_quorum.py"}


def test_what_a_simulation_finds_names_its_seed_in_the_patch_and_on_the_page() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    rows = re.findall(r"\| (\w+) \| (core|raft) \| (\d+) \|$", page, re.MULTILINE)
    simulated = {}
    for path in PATCHES:
        preamble = path.read_text().partition("diff --git")[0]
        if "Simulate:" not in preamble:
            continue
        found = SIMULATED.search(preamble)
        assert found is not None, path
        world, seed = simulated[path.stem] = found.groups()
        test = f"tests/simulation/{FILES[world]}::test_a_recorded_seed_holds[{seed}]"
        assert test in runner.read_patch(path).tests, path
    assert len(rows) >= 30
    assert [row for row in rows if simulated.get(row[0]) != row[1:]] == []


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
    (tree / "tests" / "planted" / f"{name}.patch").write_text(
        f"Bug: it does\n  {name}.\nTests: tests/test_sums.py\n\n"
        "diff --git a/sums.py b/sums.py\n--- a/sums.py\n+++ b/sums.py\n@@ -1,2 +1,2 @@\n"
        f" def add(a, b):\n-    {replaced}\n+    {line}\n"
    )


def run(tree: Path, *ids: str) -> tuple[int, str]:
    command = [sys.executable, str(RUNNER), "--root", str(tree), *ids]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
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
    assert "A3    does not apply" in said
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


def test_on_each_day_other_bugs_come_first_and_none_is_left_out() -> None:
    bugs = [runner.Planted(str(n), Path(), "", ()) for n in range(3 * runner.A_DAYS_BUGS + 1)]
    days = [runner.rotated(bugs, day) for day in range(len(bugs))]
    assert {one[0] for one in days} == set(bugs)
    assert all(set(one) == set(bugs) for one in days)
