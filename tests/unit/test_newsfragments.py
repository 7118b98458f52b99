"""Fragments of the change log are short, of a known kind, and written for users."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
PARTS = {one["path"] for one in TOWNCRIER["section"]}
TYPES = {one["directory"] for one in TOWNCRIER["type"]}
FRAGMENTS = sorted((ROOT / "newsfragments").rglob("*.md"))
CHARACTERS_MAX = 400
INTERNAL = re.compile(
    r"\.py\b|\btests?/|\btest_|[a-z]\w*\(\)|event loop|coroutine|refactor|planted|fixture_|"
    r"\b(module|docstring|generator|callback|lint\w*|mypy|ruff)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.stem)
def test_a_fragment_is_for_a_user(path: Path) -> None:
    named = re.fullmatch(r"\+[a-z0-9-]+\.([a-z]+)\.md", path.name)
    assert named, "name it +SUBJECT.TYPE.md"
    assert named[1] in TYPES
    assert path.parent.name in PARTS
    text = path.read_text()
    assert len(text) <= CHARACTERS_MAX
    assert re.fullmatch(r"[A-Z`\[][^\n]*\.\n", text), "one line of whole sentences"
    assert not INTERNAL.findall(text)


def test_the_change_log_lists_releases_only() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    unreleased = text.partition("<!-- towncrier release notes start -->")[2]
    assert re.match(r"\s*(\Z|## \d)", unreleased), (
        "what is not released is a file of newsfragments/"
    )
