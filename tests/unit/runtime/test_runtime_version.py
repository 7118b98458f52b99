"""What is not on the package index is not said to be: one place makes the command of an extra."""

import ast
import re
import tomllib
from pathlib import Path

from runtime.version import install_command

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
OF_THE_INDEX = re.compile(r"pip install [^`\n]*tidemark")
MADE_BY = ROOT / "runtime" / "version.py"


def test_the_command_names_a_clone() -> None:
    assert install_command("s3") == "pip install 'DIRECTORY-OF-THE-CLONE[s3]'"


def test_no_other_place_says_how_an_extra_is_installed() -> None:
    code = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    says = re.compile(r"pip install (?!pytest)")
    assert [path for path in code if says.search(path.read_text()) and path != MADE_BY] == []


def test_each_extra_that_is_asked_for_is_there() -> None:
    calls = [
        node.args[0]
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"install_command", "need"}
    ]
    asked = {node.value for node in calls if isinstance(node, ast.Constant)}
    assert {"s3", "spark", "seed"} <= asked <= EXTRAS.keys()


def test_no_page_says_that_the_index_has_it() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
    assert [page for page in pages if OF_THE_INDEX.search(page.read_text())] == []
