"""Changes pure modules in a thousand small ways, and says of which no test takes notice.

    python -m tests.mutation.run                      # all of modules.toml
    python -m tests.mutation.run rlmm/lineage.py      # these

mutmut makes the changes, in a copy of the tree. One that no test notices must be in
`survivors.toml` with the reason: `equivalent` (nobody can tell it from the module), `killed_by` (a
test that is too slow for modules.toml) or `open`. What is not there, and what is there and does not
survive, is printed, and the exit status is 1.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.planted.run import copy_tree
from tests.support.planted_bugs import ROOT, Edit, edit_of, edit_text, edits_between

FOLDER = Path("tests/mutation")
VERDICTS = {"equivalent", "killed_by", "open"}
SURVIVED = re.compile(r"^ +(\S+): (?:survived|no tests)$", re.MULTILINE)


def read_modules() -> dict[str, list[str]]:
    """The modules, and the tests of each."""
    found = tomllib.loads((ROOT / FOLDER / "modules.toml").read_text())
    return {module: fields["tests"] for module, fields in found.items()}


def read_survivors() -> dict[Edit, dict[str, Any]]:
    """What is known to survive, and its entry."""
    found = tomllib.loads((ROOT / FOLDER / "survivors.toml").read_text())
    return {
        edit_of({"file": module, **fields}): fields
        for module, several in found.items()
        for fields in several
    }


def mutmut(tree: Path, *arguments: str) -> str:
    """Run mutmut in a tree; what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", *arguments],
        cwd=tree,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"mutmut {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def survivors_of(tree: Path, module: str, tests: Sequence[str], processes: int) -> list[Edit]:
    """What may be changed in a module of a tree, and no test fails."""
    copied = sorted({path.name for path in tree.iterdir() if path.is_dir()} - {"mutants"})
    settings = {"source_paths": [module], "pytest_add_cli_args_test_selection": tests}
    settings |= {
        "also_copy": copied,
        "pytest_add_cli_args": ["-n", "0", "-p", "no:randomly", "--hypothesis-seed=0"],
    }
    text = "[mutmut]\n"
    for name, values in settings.items():
        text += "\n    ".join([f"{name}=", *values]) + "\n"
    (tree / "setup.cfg").write_text(text)
    shutil.rmtree(tree / "mutants", ignore_errors=True)
    said = mutmut(tree, "run", "--max-children", str(processes))
    print(f"{module}: {said.splitlines()[-2].split(chr(13))[-1]}", flush=True)
    before = (tree / module).read_text()
    found: list[Edit] = []
    for name in SURVIVED.findall(mutmut(tree, "results")):
        mutmut(tree, "apply", name)
        found += edits_between(module, before, (tree / module).read_text())
        (tree / module).write_text(before)
    return found


def main(arguments: Sequence[str]) -> int:
    """Run from the command line; the exit status."""
    modules, known = read_modules(), read_survivors()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", help="modules to change; none: all")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    found: list[Edit] = []
    asked = options.modules or list(modules)
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        tree = Path(name).resolve()
        copy_tree(ROOT, tree)
        for module in asked:
            found += survivors_of(tree, module, modules[module], options.processes)
    unexplained = [edit for edit in found if edit not in known]
    gone = [edit for edit in known if edit.file in asked and edit not in found]
    for edit in unexplained:
        print(f'\n[["{edit.file}"]]\n{edit_text(edit)}\nopen = "..."')
    for edit in gone:
        print(
            f"\nno longer survives, take it out of survivors.toml:\n{edit.file}\n{edit_text(edit)}"
        )
    print(
        f"{len(found)} survived, {len(unexplained)} unexplained; {len(gone)} explained ones did not"
    )
    return 1 if unexplained or gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
