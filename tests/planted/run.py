"""Plants known bugs, one at a time, and says whether the tests named for each notice.

    python tests/planted/run.py            # all of them
    python tests/planted/run.py S06 B04    # these
    python tests/planted/run.py --seconds 300    # as many as that, other ones each day

A bug is a patch `tests/planted/<ID>.patch` for `git apply`. Its lines before the first `diff --git`
say `Bug: <sentence>` and `Tests: <paths or pytest ids>`; a line that begins with a blank continues
the one before. Everything happens in copies of the tree: the tree itself is never changed.

The exit status is 0 only if the unpatched tests pass and every bug is caught, at the second try
at the latest: random walks do not go each way each time. Tests that cannot be collected have
caught nothing. The tests go their full rounds (`TIDEMARK_PROVE=1`).
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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[2]
PATCHES = Path("tests/planted")
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
class Planted:
    """One bug.

    Attributes:
        bug: what the changed program does wrong.
        tests: paths or pytest ids, relative to the root; each must fail on its own or with others.
    """

    id: str
    path: Path
    bug: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """How one bug fared; `good` only if a test failed."""

    planted: Planted
    good: bool
    text: str
    seconds: float


class BadPatch(Exception):
    """A patch file that does not say what it has to say."""


def read_patch(path: Path) -> Planted:
    """Read a patch file's preamble.

    Raises:
        BadPatch: a field is missing.
    """
    preamble = path.read_text().partition("diff --git")[0]
    unfolded = re.sub(r"\n[ \t]+", " ", preamble)
    fields = dict(re.findall(r"^(\w+):[ \t]*(.+)$", unfolded, flags=re.MULTILINE))
    for name in ("Bug", "Tests"):
        if name not in fields:
            raise BadPatch(f"{path}: no line `{name}: ...` before the first `diff --git`")
    return Planted(path.stem, path, fields["Bug"].strip(), tuple(fields["Tests"].split()))


def read_patches(root: Path, ids: Sequence[str] = ()) -> list[Planted]:
    """Read the patches of these ids, all if there are none, by id."""
    found = {path.stem: path for path in sorted((root / PATCHES).glob("*.patch"))}
    unknown = [one for one in ids if one not in found]
    if unknown:
        raise BadPatch(f"no such planted bug: {' '.join(unknown)} (there are: {' '.join(found)})")
    return [read_patch(found[one]) for one in (ids or found)]


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
    """Compile a tree's modules once; what a bug changes is told by its hash, and compiled anew."""
    command = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(tree)]
    subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=False)


def git_apply(tree: Path, patch: Path, *options: str) -> str:
    """Apply a patch to a tree; empty, or git's reason why not."""
    done = subprocess.run(
        ["git", "apply", *options, str(patch.resolve())],
        cwd=tree,
        # A copy inside of somebody's repository would be skipped silently.
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip() if done.returncode else ""


def run_tests(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run tests in a tree: pytest's exit status and output; a hanging run counts as failed."""
    command = [sys.executable, *PYTEST, *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        # A byte code file of the patched source, no older than the next one, would be taken for it.
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


def judge(tree: Path, planted: Planted) -> Verdict:
    """Plant one bug in a tree, run its tests, and take it out again."""
    began = time.monotonic()

    def verdict(good: bool, text: str) -> Verdict:
        return Verdict(planted, good, text, time.monotonic() - began)

    reason = git_apply(tree, planted.path)
    if reason:
        return verdict(False, f"does not apply: {reason.splitlines()[0]}")
    status, output = run_tests(tree, planted.tests)
    reason = git_apply(tree, planted.path, "--reverse")
    if reason:
        raise BadPatch(f"{planted.path}: cannot be taken out again: {reason}")
    if status == 0:
        return verdict(False, SURVIVED)
    if status != TESTS_FAILED:
        return verdict(False, f"NOT TESTED, pytest ended with {status}:\n{output}")
    first = re.search(r"^FAILED ([^\n]+?)(?: - .*)?$", output, flags=re.MULTILINE)
    return verdict(True, f"caught by {first[1] if first else 'an error'}")


def judge_all(trees: Sequence[Path], bugs: Sequence[Planted]) -> list[Verdict]:
    """Judge bugs, as many at a time as there are trees."""
    free: SimpleQueue[Path] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def in_a_tree(planted: Planted) -> Verdict:
        tree = free.get()
        try:
            return judge(tree, planted)
        finally:
            free.put(tree)

    verdicts = []
    with ThreadPoolExecutor(len(trees)) as pool:
        for verdict in pool.map(in_a_tree, bugs):
            verdicts.append(verdict)
            print(f"{verdict.planted.id:<5} {verdict.text} ({verdict.seconds:.0f} s)", flush=True)
            if not verdict.good:
                print(f"      {verdict.planted.bug}", flush=True)
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
            verdicts += judge_all(trees, batch)
        again = [one.planted for one in verdicts if one.text == SURVIVED]
        if again:
            print(f"once more, since they survived: {len(again)}", flush=True)
            survivors = {one.planted: one for one in judge_all(trees, again)}
            verdicts = [survivors.get(one.planted, one) for one in verdicts]
    missed = [verdict for verdict in verdicts if not verdict.good]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} planted bugs are caught", flush=True)
    if len(verdicts) < len(bugs):
        print(f"no time was left for {len(bugs) - len(verdicts)} others", flush=True)
    for verdict in missed:
        print(f"{verdict.planted.id} is not caught: {verdict.text}", flush=True)
    return not missed


def main(arguments: Sequence[str]) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("ids", nargs="*", help="bugs to plant; none: all")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to work on")
    parser.add_argument("--seconds", type=float, help="plant no more after so long")
    options = parser.parse_args(arguments)
    try:
        bugs = read_patches(options.root, options.ids)
    except BadPatch as error:
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
