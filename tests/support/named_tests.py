"""Every test of the tree by the name that pages give it."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


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


def is_there(test: str) -> bool:
    """Whether a path or pytest id names tests that exist; parameters are not looked at."""
    file, *names = re.sub(r"\[.*", "", test).split("::")
    return (ROOT / file).exists() and (not names or defined_in(ROOT / file).issuperset(names))


@cache
def defined_in(path: Path) -> set[str]:
    """The functions and classes of a file."""
    return set(re.findall(r"^ *(?:async )?(?:def|class) (\w+)", path.read_text(), re.MULTILINE))
