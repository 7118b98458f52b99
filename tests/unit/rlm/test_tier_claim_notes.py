"""What the counter's file says of claims: known over restarts, unlike those of a copy."""

import shutil
from pathlib import Path

import pytest
from crc32c import crc32c

from rlm.incarnation import Counter, Incarnations, dump, parse
from runtime.clock import ManualClock
from runtime.dice import SeededDice
from runtime.disk import Disk

NOW_MS = 10_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def incarnations(root: Path, clock: ManualClock, seed: int = 1) -> Incarnations:
    return Incarnations(Disk(), root, clock, SeededDice(seed))


def test_claims_of_two_copies_at_one_time_differ(root: Path) -> None:
    clock = ManualClock(wall_ms=5)
    incarnations(root, clock).take(above=NOW_MS)
    shutil.copytree(root, root.parent / "copy")
    numbers = {
        incarnations(path, clock, seed).claim(7)
        for seed, path in enumerate([root, root.parent / "copy"])
    }
    assert len(numbers) == 2


@pytest.mark.parametrize(
    ("content", "counter"),
    [
        (b"70\n", Counter(70, 70)),
        (b"70 00000000\n", None),
        (b"9 5 - 00000000\n", None),
        (b"70 -\n", None),
        (b"70 60 50 40\n", None),
        (b"70", None),
        (b"", None),
    ],
)
def test_files_of_earlier_versions_are_read_and_damaged_ones_are_not(
    content: bytes, counter: Counter | None
) -> None:
    assert parse(content) == counter


@pytest.mark.parametrize("claimed", [b"", b" -", b" 60"])
def test_a_file_of_an_earlier_version_is_read_whatever_the_digits_of_its_sum(
    claimed: bytes,
) -> None:
    """Of each 43 sums one has no letter, and looks like a number."""
    sums = set[bool]()
    for number in range(100, 400):
        text = b"%d%s" % (number, claimed)
        crc = b"%08x" % crc32c(text)
        known = {b"": number, b" -": None, b" 60": 60}[claimed]
        assert parse(text + b" " + crc + b"\n") == Counter(number, known)
        sums.add(crc.isdigit())
    assert sums == {True, False}


def test_what_is_written_is_read() -> None:
    for counter in (Counter(5, None), Counter(5, 4), Counter(5, 4, (0, 3))):
        assert parse(dump(counter)) == counter
