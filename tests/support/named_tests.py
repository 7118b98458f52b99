"""Every test of the tree by the name that pages give it."""

import re
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
