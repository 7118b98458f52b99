"""Tests in several workers: the longest first, those that measure alone, and always an end."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pytest

from tests.support.workers import THIRDS, TURN, UNTIL, group_of, shuffle_groups, third_of

pytestmark = pytest.mark.lasts(seconds=40)

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.support.workers import register

def pytest_configure(config):
    for name in ("long(seconds)", "rounds(seconds)", "lasts(seconds)", "alone"):
        config.addinivalue_line("markers", name)
    register(config)
"""
A_FEW_TESTS = """
import pytest

def test_short(): pass

@pytest.mark.long(seconds=10)
def test_ten(): pass

@pytest.mark.long
def test_thirty(): pass

@pytest.mark.alone
def test_alone(): pass

@pytest.mark.long(seconds=300)
def test_minutes(): pass
"""


@dataclass
class Item:
    """As much of a `pytest.Item` as sorting by groups asks for."""

    path: Path


@pytest.fixture
def few_tests(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_few.py").write_text(A_FEW_TESTS)
    return tmp_path


PYTEST = (sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--basetemp=tmp")
SET_HERE = ("PYTEST_", UNTIL, TURN)
INHERITED = {k: v for k, v in os.environ.items() if not k.startswith(SET_HERE)}
ENVIRONMENT = INHERITED | {"PYTHONPATH": str(ROOT)}


def run(directory: Path, *options: str, status: int = 0, **more: str) -> str:
    done = subprocess.run(
        [*PYTEST, *options],
        cwd=directory,
        env=ENVIRONMENT | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def test_the_longest_come_first_and_the_order_can_be_replayed(few_tests: Path) -> None:
    for name, mark in (("minute", "long(seconds=60)"), ("half", "long"), ("go_round", "rounds")):
        text = f"import pytest\n\n@pytest.mark.{mark}\ndef test_it(): pass\n"
        (few_tests / f"test_{name}.py").write_text(text)
    (few_tests / "test_any.py").write_text("def test_it(): pass\n")
    of_file = "import pytest\n\npytestmark = pytest.mark.lasts(seconds=17)\n\n"
    two = "def test_one(): pass\n\n@pytest.mark.long\ndef test_two(): pass\n"
    (few_tests / "test_file.py").write_text(of_file + two)
    said = run(few_tests, TIDEMARK_PROVE="1")
    files = re.findall(r"^test_(\w+)\.py::", said, re.MULTILINE)
    assert files == ["few"] * 5 + ["minute"] + files[6:9] + ["go_round", "any"]
    assert sorted(files[6:9]) == ["file", "file", "half"], "16 to 32 seconds"
    assert "replay this order: --randomly-seed=" in said


def test_with_an_end_time_the_seed_decides_which_group_runs_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(6):
        text = f"import pytest\n\n@pytest.mark.long(seconds={10**number})\ndef test_it(): pass\n"
        (tmp_path / f"test_{number}.py").write_text(text)

    def order(seed: int) -> tuple[str, ...]:
        until = {UNTIL: str(time.time() + 10**6)}
        said = run(tmp_path, f"--randomly-seed={seed}", **until)
        assert f"replay this order: --randomly-seed={seed}" in said
        return tuple(re.findall(r"^test_(\d)\.py::", said, re.MULTILINE))

    orders = [order(seed) for seed in (1, 2, 3)]
    assert len(set(orders)) == 3
    assert {frozenset(one) for one in orders} == {frozenset("012345")}
    assert order(1) == orders[0]


def test_each_group_comes_first_in_some_order(tmp_path: Path) -> None:
    """Also beside a group of many files, and one that takes long."""
    paths = [tmp_path / f"test_{number}.py" for number in range(12)]
    for number, path in enumerate(paths):
        path.write_text("S3Endpoint" if number < 8 else "")
    firsts = set()
    for seed in range(60):
        items = [Item(path) for path in paths]
        shuffle_groups(cast("list[pytest.Item]", items), seed)
        groups = [group_of(item.path) for item in items]
        assert len([pair for pair in itertools.pairwise(groups) if pair[0] != pair[1]]) == 4
        firsts.add(groups[0])
    assert len(firsts) == 5


def test_each_file_is_in_the_first_third_of_one_turn_in_three(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    paths = [tmp_path / f"test_{number}.py" for number in range(20)]
    for path in paths:
        path.write_text("def test_it(): pass\n")
    firsts: list[str] = []
    for turn in range(1573, 1573 + THIRDS):
        said = run(tmp_path, "-n", "0", **{TURN: str(turn)})
        order = re.findall(r"^(test_\d+\.py)::", said, re.MULTILINE)
        assert sorted(order) == sorted(path.name for path in paths)
        third = [third_of(tmp_path / name) for name in order]
        firsts += [name for name in order if third_of(tmp_path / name) == turn % THIRDS]
        assert [key for key, _ in itertools.groupby(third)] == [
            (turn + number) % THIRDS for number in range(THIRDS)
        ]
    assert sorted(firsts) == sorted(path.name for path in paths)


def test_what_would_end_too_late_is_not_begun(few_tests: Path) -> None:
    said = run(few_tests, "-n", "2", "-rs", **{UNTIL: str(time.time() + 100)})
    assert "4 passed, 1 skipped" in said
    assert re.search(r"SKIPPED \[1\] test_few.py:\d+: no time left for it", said)
    assert "no time left for 1 tests of 1 files: test_few.py" in said
    assert "5 skipped" in run(few_tests, **{UNTIL: str(time.time() - 1)})


HUNG_TESTS = """
import ctypes
import signal
import threading
import pytest

@pytest.fixture
def hung():
    yield
    threading.Event().wait()

def test_fails_before_a_tear_down_that_hangs(hung):
    assert False

def test_hangs_in_c_with_the_lock_of_python():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ctypes.PyDLL(None).pause()

@pytest.mark.parametrize("n", range(4))
def test_passes(n): pass
"""


def test_one_that_hangs_ends_its_worker_with_its_stacks_and_the_others_run(tmp_path: Path) -> None:
    shorter = "\nfrom tests.support import workers\nworkers.GRACE_SECONDS = 0.5\n"
    (tmp_path / "conftest.py").write_text(CONFTEST + shorter)
    (tmp_path / "test_hung.py").write_text(HUNG_TESTS)
    said = run(tmp_path, "-n", "2", "--timeout=1", status=1)
    for place in ("in hung", "in test_hangs_in_c_with_the_lock_of_python"):
        assert re.search(rf'^  File ".*test_hung.py", line \d+ {place}$', said, re.MULTILINE), said
    assert len(set(re.findall("crashed while running 'test_hung.py::(.*)'", said))) == 2
    assert "3 failed, 4 passed" in said, "once as a test, and twice as a crash"


def test_a_run_that_is_ended_names_what_it_did_not_finish(few_tests: Path) -> None:
    held = few_tests / "held"
    os.mkfifo(held)
    text = f"def test_it():\n    open({str(held)!r}).read()\n    open({str(held)!r}).read()\n"
    (few_tests / "test_held.py").write_text(
        "import pytest\n\n@pytest.mark.long(seconds=900)\n" + text
    )
    ended = subprocess.Popen(
        [*PYTEST, "-n", "1"],
        cwd=few_tests,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    held.write_text("now it runs")
    os.killpg(ended.pid, signal.SIGTERM)  # as `timeout` does
    said, _ = ended.communicate(timeout=60)
    assert ended.returncode != 0
    assert "not finished: test_held.py::test_it\n" in said
    assert "not begun: 5 tests of test_few.py\n" in said


HOLDER = """
import os, sys
from pathlib import Path
from tests.support.workers import Turns
name, alone, leaves_a_child = sys.argv[1], sys.argv[2] == "alone", sys.argv[3] == "forks"
try:
    with Turns(Path()).taken(name, 0.5 if name == "hasty" else 60, alone=alone):
        print("runs", flush=True)
        reading, writing = os.pipe()
        if leaves_a_child and os.fork() == 0:
            os.close(writing)
            os.read(reading, 1)  # until its parent has ended
            os._exit(0)
        sys.stdin.readline()
        with open("steps", "a") as steps:
            steps.write(name + "\\n")
    sys.stdin.read()
except TimeoutError as e:
    print(e, flush=True)
"""


@contextmanager
def holder(
    directory: Path, name: str, how: str = "beside others", more: str = ""
) -> Iterator[tuple[int, IO[str], IO[str]]]:
    """A process that takes its turn, says so, and ends when it reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, name, how, more],
        cwd=directory,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        yield process.pid, process.stdin, process.stdout


def test_who_wants_to_be_alone_waits_for_the_others_and_they_for_it(tmp_path: Path) -> None:
    with holder(tmp_path, "first") as (_, end_first, first), holder(tmp_path, "second") as second:
        assert first.readline() == second[2].readline() == "runs\n"
        with holder(tmp_path, "alone", "alone") as (_, end_alone, alone):
            second[1].close()
            end_first.close()
            assert alone.readline() == "runs\n"
            with holder(tmp_path, "last") as (_, end_last, last):
                end_alone.close()
                assert last.readline() == "runs\n"
                end_last.close()
    steps = (tmp_path / "steps").read_text().split()
    assert set(steps[:2]) == {"first", "second"}
    assert steps[2:] == ["alone", "last"]


def test_a_forked_child_that_is_left_behind_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path, "parent", "alone", "forks") as (_, standard_input, parent):
        assert parent.readline() == "runs\n"
        standard_input.write("\n")
        standard_input.flush()
        with holder(tmp_path, "next", "alone") as (_, end_next, other):
            assert other.readline() == "runs\n"
            end_next.close()


def test_a_wait_for_a_turn_ends_and_names_who_runs(tmp_path: Path) -> None:
    with holder(tmp_path, "slow", "alone") as (pid, end, slow):
        assert slow.readline() == "runs\n"
        with holder(tmp_path, "hasty") as (_, _, hasty):
            said = hasty.read()
        end.close()
    assert said == f"no turn within 0.5 s, these run: slow (process {pid})\n"
