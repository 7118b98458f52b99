"""Full passes of the garbage collector look at few objects, however many have come to stay."""

import gc
import sys
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from broker.app import EXIT_FAILED, run
from runtime.collector import (
    MIDDLE_PASSES,
    STAYED_MAX,
    collect_after_step,
    have_come_to_stay,
    resting_collector,
    short_full_passes,
)
from runtime.ports import system_ports
from runtime.work import Runner
from tests.support.samples.config import load
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler

MADE = 500_000
LOOKED_AT_MAX = 60_000
"""What stayed, three middle passes of 7,700 objects, and as much again for other work."""


@pytest.fixture(autouse=True)
def nothing_else() -> Iterator[None]:
    """What lives already is not looked at."""
    gc.collect()
    gc.freeze()
    gc.collect()  # Python waits until a quarter more has come than this finds
    yield
    gc.unfreeze()


class Passes:
    """How many objects each full pass looks at."""

    def __init__(self) -> None:
        self.looked_at: list[int] = []

    def __call__(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start" and facts["generation"] == 2:
            self.looked_at.append(len(gc.get_objects()))


@pytest.fixture
def passes() -> Iterator[Passes]:
    noted = Passes()
    gc.callbacks.append(noted)
    yield noted
    gc.callbacks.remove(noted)


class Node:
    """In a cycle with itself."""

    def __init__(self) -> None:
        self.itself = self


def much_that_stays() -> list[list[int]]:
    return [[number] for number in range(MADE)]


def test_a_full_pass_looks_at_few_objects_while_many_come_to_stay(passes: Passes) -> None:
    with short_full_passes():
        kept = much_that_stays()
    assert len(kept) == MADE
    assert len(passes.looked_at) > MADE / LOOKED_AT_MAX
    assert max(passes.looked_at) < LOOKED_AT_MAX


def made_of_what_goes() -> Generator[None, None, None]:
    """Steps that let go of as much as they make: nothing that Python counts, all of it young."""
    before, after = [[number] for number in range(MADE)], list[list[int]]()
    gc.freeze()
    gc.collect()
    while before:
        for _ in range(min(1_000, len(before))):
            after.append([before.pop()[0]])
        yield


@pytest.mark.parametrize("is_looked_after", [True, False])
def test_long_work_that_frees_as_much_as_it_makes_leaves_little_to_a_pass(
    passes: Passes, *, is_looked_after: bool
) -> None:
    with short_full_passes():
        work = made_of_what_goes()
        next(work)
        passes.looked_at.clear()
        young = 0
        for _ in work:
            if is_looked_after:
                collect_after_step()
            young = max(young, len(gc.get_objects(generation=0)))
    most = max([young, *passes.looked_at])
    assert (most < LOOKED_AT_MAX) is is_looked_after, most


def test_each_step_of_long_work_is_looked_after(passes: Passes) -> None:
    with short_full_passes():
        work = Runner(made_of_what_goes, ManualScheduler(ManualClock()), failed=print)
        work.start()
    assert not work.is_running
    assert len(passes.looked_at) > MADE / LOOKED_AT_MAX
    assert max(passes.looked_at[3:]) < LOOKED_AT_MAX


def test_what_lives_at_the_beginning_is_not_looked_at(passes: Passes) -> None:
    kept = much_that_stays()
    passes.looked_at.clear()
    with short_full_passes():
        gc.collect()
    assert len(kept) == MADE
    assert max(passes.looked_at) < LOOKED_AT_MAX


def test_python_itself_looks_at_all_of_them(passes: Passes) -> None:
    kept = much_that_stays()
    assert len(kept) == MADE
    assert max(passes.looked_at) > LOOKED_AT_MAX


def test_what_is_frozen_is_freed_by_its_reference_counts() -> None:
    with short_full_passes():
        kept = much_that_stays()
        frozen = gc.get_freeze_count()
        assert frozen > MADE / 2
        kept.clear()
        assert gc.get_freeze_count() < frozen - MADE / 2


def test_where_little_has_come_to_stay_cycles_that_live_long_are_freed() -> None:
    with short_full_passes():
        frozen = gc.get_freeze_count()
        kept = [[number] for number in range(STAYED_MAX // 2)]
        node = Node()
        gc.collect()
        gc.collect()
        gone = weakref.ref(node)
        del node
        gc.collect()
        assert gone() is None
        assert gc.get_freeze_count() <= frozen
    assert len(kept) == STAYED_MAX // 2


@pytest.mark.parametrize(("left", "is_much"), [(STAYED_MAX, False), (STAYED_MAX + 1, True)])
def test_what_is_left_is_frozen_when_it_is_much(left: int, is_much: bool) -> None:
    assert have_come_to_stay(left) is is_much


def test_afterwards_passes_are_as_they_were() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    with short_full_passes():
        assert gc.get_threshold() == (*before[0][:2], MIDDLE_PASSES)
    assert (gc.get_threshold(), gc.callbacks) == before


@pytest.fixture
def usual_switch_interval() -> Iterator[None]:
    """A broker changes it for its process."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("usual_switch_interval")
def test_full_passes_of_a_broker_are_short_from_its_start_on(tmp_path: Path) -> None:
    seen: list[int] = []

    def ports(loop: object) -> object:
        seen.append(gc.get_threshold()[2])
        return system_ports(loop)  # type: ignore[arg-type]

    usual = gc.get_threshold()
    assert run(load(log__dirs=str(tmp_path / "none")), ports) == EXIT_FAILED  # type: ignore[arg-type]
    assert seen == [MIDDLE_PASSES]
    assert gc.get_threshold() == usual


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_the_collector_rests_until_the_last_of_overlapping_blocks_ends() -> None:
    first, second = resting_collector(), resting_collector()
    with first:
        second.__enter__()
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_an_error_wakes_it() -> None:
    with pytest.raises(ValueError, match="x"), resting_collector():
        raise ValueError("x")
    assert gc.isenabled()


def test_a_collector_that_others_keep_from_running_is_left_so() -> None:
    gc.disable()
    with resting_collector():
        assert not gc.isenabled()
    assert not gc.isenabled()
