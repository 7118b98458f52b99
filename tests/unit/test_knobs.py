"""How long tests take: marks and variables are written down, `make prove` leaves nothing out."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.support import rounds

ROOT = Path(__file__).parents[2]
TESTS = [path for path in (ROOT / "tests").rglob("*.py") if "data" not in path.parts]
PAGE = (ROOT / "docs" / "testing.md").read_text()
OURS = ("jvm", "smoke", "integration", "slow", "long", "rounds", "patience", "lasts", "alone")
"""Marks that choose tests; the others are pytest's."""


def marks_of(path: Path) -> set[str]:
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
    }


def recipe(target: str) -> str:
    found = re.search(
        rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert found is not None, target
    return found[1]


def test_the_marks_are_those_of_the_page_and_each_is_used() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = declared["tool"]["pytest"]["ini_options"]["markers"]
    assert [re.split(r"\W", line)[0] for line in lines] == list(OURS)
    assert re.findall(r"^\| `(\w+)(?:\(.*\))?` \|", PAGE, re.MULTILINE)[: len(OURS)] == list(OURS)
    used = set().union(*(marks_of(path) for path in TESTS))
    pytests = {"parametrize", "skip", "skipif", "timeout", "usefixtures", "xfail"}
    assert used - pytests == set(OURS)


def test_every_variable_of_the_tests_is_on_the_page() -> None:
    name = re.compile(r"\bTIDEMARK_[A-Z_0-9]+\b")
    used = {one for path in TESTS for one in name.findall(path.read_text())}
    others = {"TIDEMARK_BUCKETS", "TIDEMARK_FORMAT"}  # no knobs
    others |= {"TIDEMARK_LOCALSTACK_VENV", "TIDEMARK_NO_ROUNDS", "TIDEMARK_BOOTSTRAP_SERVER"}
    assert used - set(name.findall(PAGE)) - others == set()


def test_what_make_test_leaves_out_is_run_by_make_prove() -> None:
    assert '-m "not long and not integration"' in recipe("test")
    assert '-m "integration and not long"' in recipe("integration")
    assert "TIDEMARK_PROVE=1" in recipe("prove")
    assert "pytest -m " not in recipe("prove")
    assert '-m "long or rounds"' in recipe("long")
    assert "--ignore" not in recipe("prove")


def test_who_asks_for_rounds_is_marked() -> None:
    """By mark CI's share finds the tests that go further."""
    knob = re.compile(r"import .*(?:\brounds\b|IS_PROVING)")
    asking = {path for path in TESTS if path.name[:5] == "test_" and knob.search(path.read_text())}
    marked = {path for path in TESTS if marks_of(path) & {"rounds", "long"}}
    assert asking - marked - {Path(__file__)} == set()


def test_a_variable_wins_over_quick_and_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "IS_PROVING", False)
    assert rounds.rounds("TIDEMARK_NO_ROUNDS", quick=2, full=7) == 2
    monkeypatch.setattr(rounds, "IS_PROVING", True)
    assert rounds.rounds("TIDEMARK_NO_ROUNDS", quick=2, full=7) == 7
    monkeypatch.setenv("TIDEMARK_NO_ROUNDS", "300")
    assert rounds.rounds("TIDEMARK_NO_ROUNDS", quick=2, full=7) == 300
