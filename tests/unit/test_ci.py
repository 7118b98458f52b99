"""What CI says at its end, and which Pythons it may omit; stubs stand for its parts."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.groups.builds import pythons_of_ci

pytestmark = pytest.mark.lasts(seconds=40)

CI = Path(__file__).parents[2] / ".ci"
PROGRAMS = (
    "bash",
    "cat",
    "date",
    "dirname",
    "echo",
    "env",
    "grep",
    "make",
    "mktemp",
    "rm",
    "sed",
    "sleep",
    "sort",
    "tail",
    "test",
    "timeout",
)
TESTED = "===== 7 passed, 1 skipped in 3.21s ====="
PASSES = {
    "test": f"@echo '{TESTED}'",
    "integration": "@test $(SECONDS_MAX) -gt 0; echo '===== 4 passed in 9.00s ====='",
    "soak": "@echo 'soak: 0 findings in 2 minutes'",
    "simulate": "@test $(SECONDS_MAX) -gt 0; echo 'seeds=150 violations=0'",
    "simulate-replicas": "@test $(SECONDS_MAX) -gt 0; echo 'seeds=10 violations=0'",
    "simulate-bugs": "@echo '56 of 56 planted bugs are found'",
    "pythons": "@test $(TURN) -gt 0; echo '===== 5 passed in 1.00s ====='",
    "site": "@echo build/site/index.html",
    "long": "@test $(SECONDS_MAX) -gt 0; echo '===== 2 passed, 3 skipped in 2.00s ====='",
    "planted": "@test $(SECONDS_MAX) -gt 0; echo '3 of 3 planted bugs are caught'",
    "again": "@echo 'nothing had failed'; exit 1",
}
IN_THE_TIME_LEFT = [one for one in PASSES if one not in ("test", "integration", "again")]
WEAK = "tests/unit/test_a.py::test_b"
ALONE = f"@echo '{WEAK} PASSED'; echo '===== 1 passed in 0.50s ====='"
ALL_ALONE = f"@echo '{WEAK} PASSED'; echo '===== 9 passed in 0.50s ====='"


def errors(*files: str) -> str:
    """A run in which the set-up of each of these files fails for nine tests."""
    lines = [f"ERROR tests/{file}.py::test_{n} - no" for file in files for n in range(9)]
    end = f"===== 6 passed, {len(lines)} errors in 3.00s ====="
    return "@" + "; ".join(f"echo '{line}'" for line in [*lines, end]) + "; exit 1"


def broken_off(line: str) -> str:
    """A run that ended with this line before all tests were done."""
    return f"@echo '{line}'; echo '===== 1 failed, 6 passed in 3.00s ====='; exit 1"


@pytest.fixture
def pythons() -> ModuleType:
    return pythons_of_ci()


def ci(
    place: Path, minutes: int = 30, seconds: int = 60, **recipes: str
) -> "subprocess.CompletedProcess[str]":
    """Run a copy of the program on a Makefile of stubs, with no other programs than it needs."""
    (place / ".ci").mkdir()
    shutil.copy(CI / "run", place / ".ci")
    text = "".join(
        f"{target}:\n\t@test \"$$PWD\" = '{place}'\n\t{recipe}\n"
        for target, recipe in (PASSES | recipes).items()
    )
    (place / "Makefile").write_text(text)
    programs = place / "programs"
    programs.mkdir()
    for name in (*PROGRAMS, "kcat", "curl"):
        real = shutil.which(name) or shutil.which("true")
        assert real is not None
        (programs / name).symlink_to(real)
    limits = dict.fromkeys(("TIDEMARK_CI_TEST_SECONDS", "TIDEMARK_CI_PART_SECONDS"), str(seconds))
    environment = {"PATH": str(programs), "TIDEMARK_CI_MINUTES": str(minutes), **limits}
    return subprocess.run(
        [place / ".ci" / "run"],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_when_all_passed_the_last_line_is_that_of_make_test(tmp_path: Path) -> None:
    done = ci(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == TESTED
    assert "not run" not in done.stdout
    assert done.stdout.count("ci: make ") == len(PASSES) - 1  # `again` had no reason


@pytest.mark.parametrize(
    ("target", "recipe"),
    [
        ("test", "@echo 'a linter fails'; exit 1"),
        ("test", "@echo '===== 1 failed, 6 passed in 3.00s ====='; exit 1"),
        ("soak", "@echo 'soak: 1 findings in 2 minutes'; exit 1"),
        ("pythons", "@echo '1 failed in 1s'; echo '===== 5 passed in 1.00s ====='; exit 1"),
        ("simulate", "@echo 'seeds=9 violations=1'; exit 1"),
        ("long", "@echo '===== 1 failed, 2 passed in 2.00s ====='; exit 1"),
        ("planted", "@echo 'the tests fail without any planted bug'; exit 1"),
    ],
)
def test_the_last_line_names_the_part_that_failed(target: str, recipe: str, tmp_path: Path) -> None:
    done = ci(tmp_path, **{target: recipe})
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"ci: failed: make {target}"
    assert "not run" not in done.stdout


@pytest.mark.parametrize("target", ["test", "integration", "long"])
def test_a_test_that_passes_when_it_runs_again_alone_is_named(target: str, tmp_path: Path) -> None:
    failing = "@echo '===== 1 failed, 6 passed in 3.00s ====='; exit 1"
    done = ci(tmp_path, **{target: failing, "again": ALONE})
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ci: failed, and passed when run alone; find out why: {WEAK}" in done.stdout
    assert "ci: failed:" not in done.stdout


def test_the_errors_of_one_set_up_count_once(tmp_path: Path) -> None:
    done = ci(tmp_path, test=errors("a"), again=ALL_ALONE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ci: failed, and passed when run alone; find out why: {WEAK}" in done.stdout


@pytest.mark.parametrize(
    ("target", "recipe", "again"),
    [
        ("test", errors("a"), ALONE),
        ("test", errors("a", "b", "c", "d", "e", "f"), ALL_ALONE.replace("9", "54")),
        ("test", "@echo '===== 2 failed, 6 passed in 3.00s ====='; exit 1", ALONE),
        ("test", "@echo '===== 1 failed, 1 error in 3.00s ====='; exit 1", ALONE),
        ("test", "@echo '===== 66 failed, 6 passed in 3.00s ====='; exit 1", ALONE),
        ("test", f"@echo '{TESTED}'; exit 1", ALONE),
        ("test", broken_off("!!!! Interrupted: 1 error during collection !!!!"), ALONE),
        ("test", broken_off("INTERNALERROR> a plugin"), ALONE),
        ("integration", broken_off("not begun: 52 tests of tests/a.py"), ALONE),
        ("long", "@echo '===== 1 failed in 3.00s ====='; exit 1", f"{ALONE}; exit 1"),
        ("pythons", "@echo '===== 1 failed in 3.00s ====='; exit 1", ALONE),
        ("planted", "@echo '===== 1 failed in 3.00s ====='; exit 1", ALONE),
    ],
)
def test_what_does_not_pass_alone_fails(
    target: str, recipe: str, again: str, tmp_path: Path
) -> None:
    done = ci(tmp_path, **{target: recipe, "again": again})
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"ci: failed: make {target}"


def test_all_parts_that_failed_are_named(tmp_path: Path) -> None:
    done = ci(tmp_path, pythons="@exit 1", planted="@exit 3")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "ci: failed: make pythons, make planted"


def test_parts_for_which_no_time_is_left_are_named_before_the_last_line(tmp_path: Path) -> None:
    done = ci(tmp_path, minutes=0)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert (
        "ci: not run, no time left: " + ", ".join(f"make {part}" for part in IN_THE_TIME_LEFT)
        in lines
    )
    assert lines[-1] == TESTED


def test_the_second_stage_always_runs_and_reports_the_excluded_tests(
    tmp_path: Path,
) -> None:
    excluded = "no time left for 7 tests of 2 files: tests/a.py, tests/b.py"
    passed = "===== 4 passed in 9.00s ====="
    recipe = f"@echo '{excluded}'; echo '$(SECONDS_MAX) s {passed}'; test $(TURN) -gt 0"
    done = ci(tmp_path, minutes=0, integration=recipe)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"300 s {passed}" in done.stdout
    assert f"ci: make integration: {excluded}" in done.stdout.splitlines()


def test_a_part_that_ran_nothing_in_its_time_is_named_too(tmp_path: Path) -> None:
    nothing = "@echo '===== 5 skipped in 2.00s ====='"
    done = ci(tmp_path, long=nothing, planted="@echo '0 of 0 planted bugs are caught'")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ci: not run, no time left: make long, make planted" in done.stdout.splitlines()


@pytest.mark.parametrize("target", ["test", "soak", "long"])
def test_a_part_that_hangs_is_stopped_and_fails_whatever_it_leaves_behind(
    target: str, tmp_path: Path
) -> None:
    stray = "{ trap '' TERM; until test -e ended; do sleep 0.1; done; } &"
    closing = "===== 1 failed, 6 passed in 3.00s ====="
    hangs = f"@{stray} echo '{closing}'; sleep 1000"
    done = ci(tmp_path, seconds=3, **{target: hangs, "again": ALONE})
    (tmp_path / "ended").touch()
    assert done.returncode == 1
    assert closing in done.stdout
    assert done.stdout.splitlines()[-1] == f"ci: failed: make {target} (3 s were too few)"


def test_a_library_without_a_wheel_is_no_failure_but_all_else_is(
    pythons: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = [sys.executable, "-m", "pip"]
    source = tmp_path / "pyproject.toml"
    source.write_text('[project]\nname = "source-only"\nversion = "1"\n')
    with tarfile.open(tmp_path / "source_only-1.tar.gz", "w:gz") as archive:
        archive.add(source, "source_only-1/pyproject.toml")
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
    for name, value in (offline | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(pythons.NoWheelError, match=r"no wheel of source-only$"):
        pythons.install(pip, "--dry-run", "source-only>=1")
    with pytest.raises(pythons.PipError, match="nowhere"):
        pythons.install(pip, "--dry-run", "nowhere")
    with pytest.raises(pythons.PipError, match="Invalid requirement"):
        pythons.install(pip, "--dry-run", "no name")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(pythons.PipError, match="source-only"):
        pythons.install(pip, "--dry-run", "source-only")


def test_an_interpreter_is_found_off_the_path_and_a_shim_is_none(
    pythons: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims, off = tmp_path / "shims", tmp_path / "off"
    for folder, line in ((shims, "exit 127"), (off, "echo '(3, 14)'")):
        folder.mkdir()
        (folder / "python3.14").write_text(f"#!/bin/sh\n{line}\n")
        (folder / "python3.14").chmod(0o755)
    monkeypatch.setenv("PATH", str(shims))
    assert pythons.interpreter((3, 14)) is None
    assert pythons.interpreter((3, 14), [str(off)]) == str(off / "python3.14")
