"""Passes of the garbage collector over everything, held back while much is made."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.app import EXIT_FAILED, run
from runtime.collector import FullPasses
from runtime.ports import system_ports
from tests.support.samples.config import load


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def full_passes_while_much_is_made() -> int:
    """How many: each list is looked at by the collector, and all of them stay."""
    before = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(500_000)]
    assert len(kept) == 500_000
    return int(gc.get_stats()[2]["collections"]) - before


def test_no_full_pass_comes_while_they_are_held_back() -> None:
    gc.freeze()
    gc.collect()  # of what is left a quarter more is a reason for the next
    passes = FullPasses()
    assert full_passes_while_much_is_made() > 0
    passes.hold_back()
    assert passes.are_held_back
    assert full_passes_while_much_is_made() == 0


def test_what_was_made_is_looked_at_no_more_the_first_time_only() -> None:
    usual = gc.get_threshold()
    passes = FullPasses()
    passes.hold_back()
    made = [[number] for number in range(10_000)]
    passes.leave_out_what_lives()
    passes.allow()
    assert gc.get_threshold() == usual
    assert not passes.are_held_back
    frozen = gc.get_freeze_count()
    assert frozen > len(made)
    more = [[number] for number in range(10_000)]
    passes.leave_out_what_lives()
    assert gc.get_freeze_count() <= frozen
    assert len(more) == 10_000


def test_a_broker_holds_full_passes_back_while_it_starts(tmp_path: Path) -> None:
    seen: list[bool] = []

    def ports(loop: object) -> object:
        seen.append(FullPasses().are_held_back)
        return system_ports(loop)  # type: ignore[arg-type]

    assert run(load(log__dirs=str(tmp_path / "none")), ports) == EXIT_FAILED  # type: ignore[arg-type]
    assert seen == [True]
    assert not FullPasses().are_held_back
