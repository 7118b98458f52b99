"""Plants known bugs, one at a time, and says whether the tests named for each notice.

    python -m tests.planted.run            # all of them
    python -m tests.planted.run S06 B04    # these
    python -m tests.planted.run --seconds 300    # as many as that, other ones each day
    python -m tests.planted.run --add S07 --why "It does." --tests "tests/unit/test_a.py::test_b"

The bugs are in the tables beside this file (tests/support/planted_bugs.py). Each is planted in a
copy of the tree.

The exit status is 0 only if the tests pass without bugs and every bug is caught, at the second try
at the latest: random walks do not go each way each time. Tests that cannot be collected have
caught nothing. The tests go their full rounds (`TIDEMARK_PROVE=1`).

`--add` makes a bug of what `git diff` says of all but tests and docs, and takes that out of the
tree: stage or commit the rest before you change the code to what it must not be.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

from tests.support.planted_bugs import (
    ROOT,
    TABLES,
    BadTable,
    Planted,
    edited,
    edits_between,
    entries,
    entry,
    planted_texts,
    read_tables,
    write_entries,
)

RUN_SECONDS_MAX = 900
COPIES = 2
A_DAYS_BUGS = 40
"""By so many the first bug of a run with `--seconds` moves on each day."""
BATCH = 8
"""Between so many bugs a run with `--seconds` looks at the clock."""
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=line")
SURVIVED = "SURVIVED"
TESTS_FAILED = 1  # pytest's exit status; 2 and above: nothing was tested


@dataclass(frozen=True)
class Verdict:
    """How one bug fared; `good` only if a test failed."""

    planted: Planted
    good: bool
    text: str
    seconds: float


def copy_tree(root: Path, target: Path) -> None:
    """Copy what git tracks, and what is new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    for name in set(listed.stdout.decode().split("\0")) - {""}:
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)


def compile_tree(tree: Path) -> None:
    """Compile a tree's modules once; what a bug changes is told by its hash, and compiled again."""
    command = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(tree)]
    subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=False)


@contextmanager
def planted_in(tree: Path, bug: Planted) -> Iterator[None]:
    """A bug in a tree, taken out at the end.

    Raises:
        BadTable: it does not fit the tree.
    """
    texts = planted_texts(tree, bug)
    before = {path: path.read_bytes() for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text)
        yield
    finally:
        for path, content in before.items():
            path.write_bytes(content)


def run_tests(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run tests in a tree: pytest's exit status and output; a hanging run counts as failed."""
    command = [sys.executable, *PYTEST, *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        # A byte code file of the changed source, no older than the next one, would be taken for it.
        "PYTHONDONTWRITEBYTECODE": "1",
        "TIDEMARK_PROVE": "1",
    }
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TESTS_FAILED, f"FAILED the run took more than {RUN_SECONDS_MAX} s\n"
    return done.returncode, done.stdout


def validate(tree: Path, planted: Planted) -> Verdict:
    """Plant one bug in a tree, run its tests, and take it out again."""
    began = time.monotonic()

    def verdict(good: bool, text: str) -> Verdict:
        return Verdict(planted, good, text, time.monotonic() - began)

    try:
        with planted_in(tree, planted):
            status, output = run_tests(tree, planted.tests)
    except BadTable as error:
        return verdict(False, f"cannot be planted: {error}")
    if status == 0:
        return verdict(False, SURVIVED)
    if status != TESTS_FAILED:
        return verdict(False, f"NOT TESTED, pytest ended with {status}:\n{output}")
    first = re.search(r"^FAILED ([^\n]+?)(?: - .*)?$", output, flags=re.MULTILINE)
    return verdict(True, f"caught by {first[1] if first else 'an error'}")


def validate_all(trees: Sequence[Path], bugs: Sequence[Planted]) -> list[Verdict]:
    """Validate bugs, as many at a time as there are trees."""
    free: SimpleQueue[Path] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def in_a_tree(planted: Planted) -> Verdict:
        tree = free.get()
        try:
            return validate(tree, planted)
        finally:
            free.put(tree)

    verdicts = []
    with ThreadPoolExecutor(len(trees)) as pool:
        for verdict in pool.map(in_a_tree, bugs):
            verdicts.append(verdict)
            print(f"{verdict.planted.id:<5} {verdict.text} ({verdict.seconds:.0f} s)", flush=True)
            if not verdict.good:
                print(f"      {verdict.planted.why}", flush=True)
    return verdicts


def rotated(bugs: Sequence[Planted], day: int) -> list[Planted]:
    """All bugs, beginning with those of a day: in a few days every bug was among the first."""
    first = day * A_DAYS_BUGS % len(bugs)
    return [*bugs[first:], *bugs[:first]]


def batches(bugs: Sequence[Planted], ends_s: float | None) -> Iterator[Sequence[Planted]]:
    """All bugs at once; with an end, a few at a time until `time.monotonic()` has come to it."""
    if ends_s is None:
        yield bugs
        return
    for first in range(0, len(bugs), BATCH):
        if time.monotonic() > ends_s:
            return
        yield bugs[first : first + BATCH]


def plant(root: Path, bugs: Sequence[Planted], ends_s: float | None) -> bool:
    """Plant bugs in copies of a tree; whether the tests pass without them and caught them all."""
    passed: set[str] = set()
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        trees = [Path(name).resolve() / str(number) for number in range(min(COPIES, len(bugs)))]
        for tree in trees:
            copy_tree(root, tree)
            compile_tree(tree)
        for batch in batches(bugs, ends_s):
            tests = sorted({test for planted in batch for test in planted.tests} - passed)
            status, output = run_tests(trees[0], tests) if tests else (0, "")
            if status == TESTS_FAILED:
                print(f"once more, since without a planted bug:\n{output}", flush=True)
                status, output = run_tests(trees[0], tests)
            if status:
                print(f"the tests fail without any planted bug:\n{output}", file=sys.stderr)
                return False
            passed.update(tests)
            print(f"without a planted bug {len(tests)} tests and files pass", flush=True)
            verdicts += validate_all(trees, batch)
        again = [one.planted for one in verdicts if one.text == SURVIVED]
        if again:
            print(f"once more, since they survived: {len(again)}", flush=True)
            survivors = {one.planted: one for one in validate_all(trees, again)}
            verdicts = [survivors.get(one.planted, one) for one in verdicts]
    missed = [verdict for verdict in verdicts if not verdict.good]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} planted bugs are caught", flush=True)
    if len(verdicts) < len(bugs):
        print(f"no time was left for {len(bugs) - len(verdicts)} others", flush=True)
    for verdict in missed:
        print(f"{verdict.planted.id} is not caught: {verdict.text}", flush=True)
    return not missed


def git(root: Path, *arguments: str) -> str:
    """Run git; what it says."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


def add(root: Path, name: str, why: str, tests: Sequence[str]) -> None:
    """Make a bug of what was changed in the tree, and take it out there.

    Raises:
        BadTable: nothing was changed, or the tables have a bug of this name.
    """
    if not re.fullmatch(r"[A-Z]+\d+[a-z]?", name) or name in {one.id for one in read_tables(root)}:
        raise BadTable(f"{name} is taken, or no name for a planted bug: it is to be like RC10")
    if not why or not tests:
        raise BadTable("say --why the program is wrong then, and which --tests must notice")
    files = git(root, "diff", "--name-only", "--relative", "--", ":!tests", ":!docs").splitlines()
    if not files:
        raise BadTable(
            "`git diff` names no file but of tests and docs: make the bug, do not stage it"
        )
    staged = {file: git(root, "show", f":./{file}") for file in files}
    edits = []
    for file, before in staged.items():
        after = (root / file).read_text()
        found = list(edits_between(file, before, after))
        assert edited(before, file, found) == after, found
        edits += found
    table = root / TABLES / f"{files[0].partition('/')[0].removesuffix('.py')}.toml"
    bug = Planted(name, table, why, tuple(tests), tuple(edits))
    write_entries(table, entries(table) | {name: entry(bug)})
    for file, before in staged.items():
        (root / file).write_text(before)
    print(f"{table.relative_to(root)} has it now, and the tree has no longer:\n{entry(bug)}")


def main(arguments: Sequence[str]) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("ids", nargs="*", help="bugs to plant; none: all")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to work on")
    parser.add_argument("--seconds", type=float, help="plant no more after so long")
    parser.add_argument("--add", metavar="ID", help="make a planted bug of what `git diff` says")
    parser.add_argument("--why", default="", help="with --add: what the changed program does wrong")
    parser.add_argument("--tests", default="", help="with --add: the tests that must notice")
    options = parser.parse_args(arguments)
    try:
        if options.add:
            add(options.root, options.add, options.why, options.tests.split())
            return 0
        bugs = read_tables(options.root, options.ids)
    except BadTable as error:
        print(error, file=sys.stderr)
        return 1
    if not bugs:
        print("there are no planted bugs", file=sys.stderr)
        return 1
    ends_s = None
    if options.seconds is not None:
        ends_s = time.monotonic() + options.seconds
        bugs = rotated(bugs, datetime.now(UTC).toordinal())
    return 0 if plant(options.root, bugs, ends_s) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
