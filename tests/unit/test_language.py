"""The linter of language finds words, openings, long sentences and cells; the past is allowed."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def language() -> ModuleType:
    spec = importlib.util.spec_from_file_location("language_of_ci", ROOT / ".ci/language.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rules(language: ModuleType) -> object:
    return language.Rules(
        {
            "sentence_words_max": 5,
            "cell_characters_max": 10,
            "openings": ["What", "One that"],
            "words": {"anew": "again", "goes on|go on": "continues"},
        }
    )


def found(rules: object, path: str, text: str) -> list[tuple[str, int]]:
    places = rules.places(path, text)  # type: ignore[attr-defined]
    return [(place.rule, place.line) for place in places]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It begins Anew.", [("anew", 1)]),
        ("A renewed\n\nthing goes\non.", [("goes on|go on", 3)]),
        ("`anew` and [x](anew.md)", []),
        ("```\nanew\n```\nIt starts anew", [("anew", 4)]),
        ("One that reads. What\nis it", [("opening", 1), ("opening", 1)]),
        ("Somewhat What", []),
        ("one two three four five. Six seven", []),
        ("one two three\nfour five six", [("sentence", 1)]),
        ("- one two three\n- four five six", []),
        ("1. one two three\n2. four five anew", [("anew", 2)]),
        ("| short | eleven char | `a\\|b` |", [("cell", 1)]),
        ("# Heading anew\ntext", [("anew", 1)]),
    ],
)
def test_prose_of_markdown(rules: object, text: str, expected: list[tuple[str, int]]) -> None:
    assert found(rules, "a.md", text) == expected


def test_docstrings_and_comments_of_python(rules: object) -> None:
    source = '''"""What it is.

Begins anew.
"""
anew = "anew"  # go
# on, or not
y = 2
x = 1  # anew


def f():
    """One that
    reads."""
'''
    assert found(rules, "a.py", source) == [
        ("opening", 1),
        ("anew", 3),
        ("opening", 12),
        ("goes on|go on", 5),
        ("anew", 8),
    ]


def test_counts_are_written_behind_the_rules_and_replace_older_ones(language: ModuleType) -> None:
    first = language.written('a = 1\n\n[words]\n"x" = "y"\n', {"x": {"docs": 2, "broker": 1}})
    assert first == 'a = 1\n\n[words]\n"x" = "y"\n\n[left."x"]\n"broker" = 1\n"docs" = 2\n'
    assert language.written(first, {"x": {"docs": 1}}).endswith('[left."x"]\n"docs" = 1\n')


def test_more_than_is_left_fails_and_names_the_place(
    language: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = tmp_path / "language.toml"
    table.write_text(language.TABLE.read_text())
    monkeypatch.setattr(language, "TABLE", table)
    ones = [language.Place("anew", "docs/a.md", 3, "...it begins anew... -> again")]
    monkeypatch.setattr(language, "all_places", lambda _: {"anew": {"nowhere": ones}})
    monkeypatch.setattr(sys, "argv", ["language.py"])
    assert language.main() == 1
    assert "docs/a.md:3: ...it begins anew... -> again" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["language.py", "--write"])
    assert language.main() == 0
    monkeypatch.setattr(sys, "argv", ["language.py"])
    assert language.main() == 0
