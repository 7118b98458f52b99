"""Each Python block of README and docs is taken by Python's plain prompt as it stands there."""

import re
from pathlib import Path

import pytest

from broker.config.keys import BROKER_KEYS
from rsm_plugins.loader import SHIPPED, load_storage_manager
from rsm_plugins.settings import PREFIX
from tests.support.brokers.prompt import refusal, sessions
from tests.support.brokers.untyped import UNTYPED, untyped

ROOT = Path(__file__).parents[2]
TYPED = re.compile(r"^```((python|sh)\b|\w+ \S)", re.MULTILINE)
PART = re.compile(r"^```properties\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLLOWED = {
    "README.md": "tests/integration/test_readme.py",
    "docs/controllers.md": "tests/integration/test_operators_page.py",
    "docs/operations.md": "tests/integration/test_typed_pages.py",
    "docs/plugin-guide.md": "tests/contract/test_plugin_guide.py",
    "docs/plugin-http.md": "tests/contract/test_rsm_new.py",
    "docs/remote-stores.md": "tests/integration/test_typed_pages.py",
    "docs/replication.md": "tests/integration/test_operators_page.py",
    "docs/spark.md": "tests/integration/test_run_spark.py",
    "docs/taking-over.md": "tests/integration/test_typed_pages.py",
    "docs/testing-with-tidemark.md": "tests/integration/test_embedded_plugin.py",
}
"""Pages with blocks that a reader types or makes files of, and the tests that do so."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_has_typed_at_the_prompt_is_taken(page: Path) -> None:
    refused = [
        f"{page.name}:{line}: {why}"
        for line, session in sessions(page.read_text())
        if (why := refusal(session))
    ]
    assert refused == []


def test_each_page_that_is_typed_is_typed_by_a_test() -> None:
    typed = [page for page in PAGES if TYPED.search(page.read_text())]
    assert [str(page.relative_to(ROOT)) for page in typed] == list(FOLLOWED)
    for page, test in FOLLOWED.items():
        words = (Path(page).name, Path(page).stem.upper(), "GUIDE")
        assert any(word in (ROOT / test).read_text() for word in words), page


@pytest.mark.parametrize("name", UNTYPED)
def test_each_block_for_operators_is_typed_or_has_a_reason(name: str) -> None:
    found = list(untyped((ROOT / "docs" / name).read_text()))
    assert sorted(set(found)) == sorted(UNTYPED[name]), "say `sh`, or why no test can type it"


def test_a_new_block_is_noticed() -> None:
    page = (
        "```sh\na\n```\n```json a.json\nb\n```\n```\nc\nd\n```\n1. e\n   ```console\n   f\n  ```\n"
    )
    assert list(untyped(page)) == ["c", "f"]


def test_each_reason_names_tests_that_are_there() -> None:
    named = re.findall(
        r"test_\w+\.py", " ".join(why for of in UNTYPED.values() for why in of.values())
    )
    assert len(named) > 8
    assert [one for one in named if not list((ROOT / "tests").rglob(one))] == []


def test_each_line_of_a_part_of_a_server_properties_is_a_key() -> None:
    plugins = [type(load_storage_manager(name)) for name in SHIPPED]
    known = {PREFIX + one.name for plugin in plugins for one in plugin.SETTINGS}  # type: ignore[attr-defined]
    lines = [
        line
        for name in UNTYPED
        for part in PART.findall((ROOT / "docs" / name).read_text())
        for line in part.splitlines()
        if not line.startswith("#")
    ]
    assert len(lines) > 8
    keys = [line.partition("=")[0] for line in lines]
    options = f"{PREFIX}option."
    assert [
        one
        for one in keys
        if one not in BROKER_KEYS and one not in known and not one.startswith(options)
    ] == []


@pytest.mark.parametrize(
    ("session", "words"),
    [
        ("for n in range(2):\n    print(n)\nprint()\n", "line 3, 'print()': invalid syntax"),
        ("def one():\n    a = 1\n\n    return a\n", "unexpected indent"),
        ("print((1,\n", "it does not end"),
        ("print(1\n)\nx == = 1\n", "line 3"),
    ],
)
def test_what_the_prompt_refuses_is_named(session: str, words: str) -> None:
    assert words in refusal(session)


def test_what_the_prompt_takes() -> None:
    assert refusal("for n in range(2):\n    print(n)\n\nx = {\n    1: 2,\n}\n") == ""
    assert refusal("with open(1) as f:\n    pass\n") == ""


def test_sessions_are_blocks_without_a_name() -> None:
    text = "a\n```python\nx\n```\n```python file.py\ny\n```\n```python\nz\n```\n"
    assert list(sessions(text)) == [(2, "x\n"), (8, "z\n")]
