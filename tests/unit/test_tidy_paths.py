"""Files and functions that the pages name exist: a move that forgets the pages fails here."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "architecture.md"
NAMED_FILE = re.compile(r"`([\w/.-]+/[\w.-]+\.(?:py|md|toml|patch))`")
HOP = re.compile(r"\| \d+ \| `([^`]+)` \| (`.+?`) \|")


def tracked() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def defined_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_files_that_pages_name_exist() -> None:
    files = tracked()
    # a page on one package may leave its name off: quorum/node.py
    known = {"/".join(Path(name).parts[at:]) for name in files for at in range(name.count("/") + 1)}
    wrong = [
        f"{page}: {named}"
        for page in files
        if page.endswith(".md")
        for named in NAMED_FILE.findall((ROOT / page).read_text())
        if named not in known
    ]
    assert wrong == []


def test_the_walks_name_functions_that_exist() -> None:
    hops = HOP.findall(MAP.read_text())
    assert len(hops) > 80
    wrong = []
    for file, functions in hops:
        if not (ROOT / file).is_file():
            wrong.append(file)
            continue
        names = [name for each in re.findall(r"`([^`]+)`", functions) for name in each.split(".")]
        wrong += [f"{file}: {name}" for name in names if name not in defined_in(ROOT / file)]
    assert wrong == []
