"""Tests in several workers: the longest first, those that measure alone, none after the end."""

import itertools
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.support.workers import UNTIL, Turns, group_of, shuffle_groups

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


def run(directory: Path, *options: str, **more: str) -> str:
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_") and k != UNTIL}
    environment = inherited | {"PYTHONPATH": str(ROOT)} | more
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_longest_come_first_and_the_order_can_be_replayed(few_tests: Path) -> None:
    for name, mark in (("minute", "long(seconds=60)"), ("half", "long"), ("go_round", "rounds")):
        text = f"import pytest\n\n@pytest.mark.{mark}\ndef test_it(): pass\n"
        (few_tests / f"test_{name}.py").write_text(text)
    (few_tests / "test_any.py").write_text("def test_it(): pass\n")
    of_file = "import pytest\n\npytestmark = pytest.mark.lasts(seconds=17)\n\n"
    two = "def test_one(): pass\n\n@pytest.mark.long\ndef test_two(): pass\n"
    (few_tests / "test_file.py").write_text(of_file + two)
    said = run(few_tests)
    files = re.findall(r"^test_(\w+)\.py::", said, re.MULTILINE)
    assert files == ["few"] * 5 + ["minute"] + files[6:9] + ["go_round", "any"]
    assert sorted(files[6:9]) == ["file", "file", "half"], "16 to 32 seconds"
    assert "replay this order: --randomly-seed=" in said


def test_in_a_run_that_has_an_end_any_group_may_be_first_and_the_seed_decides(
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


def test_what_would_end_too_late_is_not_begun(few_tests: Path) -> None:
    said = run(few_tests, "-n", "2", "-rs", **{UNTIL: str(time.time() + 100)})
    assert "4 passed, 1 skipped" in said
    assert re.search(r"SKIPPED \[1\] test_few.py:\d+: no time left for it", said)
    assert "5 skipped" in run(few_tests, **{UNTIL: str(time.time() - 1)})


def test_who_wants_to_be_alone_waits_for_the_others_and_they_for_it(tmp_path: Path) -> None:
    """Flock belongs to the open file, so threads stand for processes here."""
    turns = Turns(tmp_path)
    steps: list[str] = []
    first_runs, first_may_end = threading.Event(), threading.Event()

    def first() -> None:
        with turns.taken(alone=False):
            first_runs.set()
            assert first_may_end.wait(30)
            steps.append("first ends")

    def alone() -> None:
        with turns.taken(alone=True):
            steps.append("alone")

    threads = [threading.Thread(target=first), threading.Thread(target=alone)]
    threads[0].start()
    assert first_runs.wait(30)
    with turns.taken(alone=False):
        steps.append("two side by side")
    threads[1].start()
    first_may_end.set()
    for thread in threads:
        thread.join(30)
    assert steps == ["two side by side", "first ends", "alone"]
