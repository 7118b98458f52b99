"""Runs the unit and property tests with each of Python 3.11 to 3.14 that is on PATH.

    python .ci/pythons.py [--turn N] [ARGUMENTS OF PYTEST]

The version of this interpreter is excluded: `make test` has run it. Each other one gets an
environment `.venv-3.N` of its own; with a turn only one of them runs, another each turn. Where a
library has no wheel for a version, that is said and the version is skipped: a newcomer would need a
compiler for it. All else that pip fails at is a failure. A simulated quorum takes the same way on
each of them: the hashes of its trace are equal.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ((3, 11), (3, 12), (3, 13), (3, 14))
TESTS = ("tests/unit", "tests/property")
WHEELS_ONLY = ("--only-binary", ":all:", "--no-binary", "pyspark")
"""PySpark is published as source alone, which needs no compiler."""
ASK = "import sys; print(sys.version_info[:2])"


def interpreter(version: tuple[int, int], more: Sequence[str] = ()) -> str | None:
    """The first one on PATH or in `more` that runs: a shim may stand for nothing."""
    name = f"python{version[0]}.{version[1]}"
    for folder in (*os.get_exec_path(), *more):
        path = shutil.which(name, path=folder)
        if path is None:
            continue
        done = subprocess.run([path, "-c", ASK], capture_output=True, text=True, check=False)
        if done.stdout.strip() == str(version):
            return path
    return None


class NoWheelError(Exception):
    """A library is there for this Python as source only."""


class PipError(Exception):
    """Pip failed for another reason."""


def install(pip: Sequence[str], *what: str) -> None:
    """Install from wheels only.

    Pip has the same words for a library without a wheel, one that is nowhere, and an index that
    does not answer; so it is asked whether it sees the library at all.
    """
    done = _run(*pip, "install", "--quiet", *WHEELS_ONLY, *what)
    if done.returncode == 0:
        return
    missing = re.search(r"No matching distribution found for ([\w.-]+)", done.stderr)
    if missing and _run(*pip, "index", "versions", missing[1]).returncode == 0:
        raise NoWheelError(f"no wheel of {missing[1]}")
    raise PipError(done.stderr.strip() or "pip failed")


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def make_environment(python: str, place: Path) -> None:
    """Make an environment, or bring it up to date."""
    packaging = ROOT / "pyproject.toml"
    stamp = place / ".installed"
    if stamp.exists() and stamp.stat().st_mtime > packaging.stat().st_mtime:
        return
    subprocess.run([python, "-m", "venv", "--clear", str(place)], check=True)
    install([str(place / "bin" / "pip")], "-e", ".[test]")
    stamp.touch()


def run(place: Path, arguments: list[str]) -> bool:
    """Whether the tests pass there."""
    workers = ["-n", os.environ.get("WORKERS", "4")]
    pytest = [str(place / "bin" / "pytest"), *workers, "-m", "not long", *TESTS, *arguments]
    return subprocess.run(pytest, cwd=ROOT, check=False).returncode == 0


def trace_hashes(python: str) -> str:
    """Those of some simulated quorums, as one line; what Python wrote if it failed."""
    done = _run(python, "-m", "tests.support.quorum_world.trace_hashes")
    return done.stdout if done.returncode == 0 else done.stderr


def main(arguments: list[str]) -> int:
    """Run all versions; the exit status."""
    failed = []
    names = {version: f"{version[0]}.{version[1]}" for version in VERSIONS}
    if names.pop(sys.version_info[:2], None):
        print(f"Python {sys.version_info[0]}.{sys.version_info[1]}: run by make test", flush=True)
    found = {names[version]: interpreter(version) for version in names}
    missing = [name for name, python in found.items() if python is None]
    there = [(name, python) for name, python in found.items() if python is not None]
    if arguments[:1] == ["--turn"] and there:
        chosen = int(arguments[1]) % len(there)
        for name, _ in there[:chosen] + there[chosen + 1 :]:
            print(f"Python {name}: another turn", flush=True)
        there, arguments = there[chosen : chosen + 1], arguments[2:]
    for name, python in there:
        place = ROOT / f".venv-{name}"
        try:
            make_environment(python, place)
        except NoWheelError as e:
            print(f"Python {name}: skipped, {e}", flush=True)
            continue
        except (PipError, subprocess.CalledProcessError) as e:
            print(f"Python {name}: cannot be set up: {e}", file=sys.stderr)
            failed.append(name)
            continue
        print(f"Python {name}: {' '.join(TESTS)}", flush=True)
        passed = run(place, arguments)
        ours, theirs = trace_hashes(sys.executable), trace_hashes(str(place / "bin" / "python"))
        if ours != theirs:
            print(f"Python {name}: simulated quorums go another way: {theirs}here: {ours}")
        if not passed or ours != theirs:
            failed.append(name)
    if missing:
        print(f"not on PATH: Python {', '.join(missing)}", flush=True)
    if failed:
        print(f"failed with Python {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
