"""What the counter's file says of claims: known over restarts, unlike those of a copy."""

import shutil
from pathlib import Path

import pytest

from rlm.maintenance.claim import validate
from rlm.maintenance.incarnation import Counter, Incarnations, dump, parse
from runtime.disk import Disk
from runtime.health_reasons import HEALTHY
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng

NOW_MS = 10_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def incarnations(root: Path, clock: ManualClock, seed: int = 1) -> Incarnations:
    return Incarnations(Disk(), root, clock, SeededRng(seed))


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
    "content",
    [b"70\n", b"70 00000000\n", b"9 5 - 00000000\n", b"70 -\n", b"70 60 50 40\n", b"70", b""],
)
def test_a_file_that_is_damaged_or_of_an_unreleased_form_says_nothing(content: bytes) -> None:
    assert parse(content) is None


def test_a_file_with_a_sum_of_digits_alone_is_read() -> None:
    """Of each 43 sums one has no letter."""
    written = [dump(Counter(number, None)) for number in range(100, 400)]
    assert {one.split()[-1].isdigit() for one in written} == {True, False}
    assert [parse(one) for one in written] == [Counter(number, None) for number in range(100, 400)]


def test_what_is_written_is_read() -> None:
    for counter in (Counter(5, None), Counter(5, 4), Counter(5, 4, (0, 3))):
        assert parse(dump(counter)) == counter


def test_the_floor_of_the_claims_never_falls() -> None:
    """Two PUTs that nobody waits for any more land one after the other, after two later claims."""
    counter = Counter(100, 100, (90,))
    for number, found in ((210, 100), (220, 100), (230, 100), (240, 230)):
        assert validate(found, counter) == HEALTHY
        counter = counter.noted(number, found)
    assert validate(210, counter) == HEALTHY, "the first landed"
    counter = counter.noted(250, 210)
    assert counter.before[0] == 230
    assert validate(220, counter) == HEALTHY, "the second landed"
    assert validate(235, counter) != HEALTHY


def test_a_store_that_was_emptied_does_not_lower_the_floor() -> None:
    assert Counter(240, 240, (230,)).noted(250, None) == Counter(250, 250, (230, 240))


def test_a_claim_between_two_noted_numbers_is_not_of_these_files() -> None:
    known = Counter(9, 7, (2, 5))
    assert [found for found in range(10) if validate(found, known)] == [3, 4, 6, 8, 9]


def test_the_store_may_hold_the_found_claim_and_all_noted_since() -> None:
    known = Counter(9, 7, (2, 5))
    assert known.noted(20, 2) == Counter(20, 20, (2, 5, 7)), "neither has come about yet"
    assert known.noted(20, 5) == Counter(20, 20, (5, 7))
    assert known.noted(20, 7) == Counter(20, 20, (7,))
    assert known.noted(20, None) == Counter(20, 20, (2, 5, 7))
    assert Counter(9, None).noted(20, None) == Counter(20, 20, (0,))
    assert Counter(9, 7).noted(20, 5) == Counter(20, 20, (5, 7))
    for number in range(30, 100):
        known = known.noted(number, 2)
        assert parse(dump(known)) == known
    assert known.before == (2, *range(85, 99))
