"""The remover killed before and after every step of a topic's deletion, its notes included."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlmm.api import PartitionDeleteState
from rlmm.testing import PARTITION
from tests.support.tier.remover_setup import COPY_MAX_MS, GRACE_MS, S0, S1, Setup

FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED
STEPS = 13


class KilledError(Exception):
    """The tier process died."""


class Killer:
    """Counts what the remover does to the outside, and dies at one of these steps."""

    def __init__(self, setup: Setup, at: int, *, is_done: bool) -> None:
        self.at, self.is_done = at, is_done
        self.count = 0
        self.armed = True
        self.wrap(setup.manager, "put_partition_delete")
        self.wrap(setup.manager, "update")
        self.wrap(setup.storage, "delete_log_segment_data")
        self.wrap(setup.log, "topics_emptied")

    def wrap(self, of: object, name: str) -> None:
        inner: Callable[..., Any] = getattr(of, name)

        def step(*args: Any) -> Any:
            self.count += 1
            dies = self.armed and self.count == self.at
            self.armed = self.armed and not dies
            if dies and not self.is_done:
                raise KilledError
            result = inner(*args)
            if dies:
                raise KilledError
            return result

        setattr(of, name, step)


def live_until_gone(setup: Setup) -> bool:
    """Passes with time between them, a new process after a kill; says whether one was killed."""
    killed = False
    for wait_ms in (0, GRACE_MS, 0, COPY_MAX_MS + 1, 0, GRACE_MS, 0, GRACE_MS, 0):
        setup.clock.advance(wait_ms)
        try:
            setup.run_pass()
        except KilledError:
            killed = True
            setup.remover = setup.new_remover()
    return killed


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_killed_at_any_step_the_store_and_the_list_end_empty(
    tmp_path: Path, at: int, is_done: bool
) -> None:
    setup = Setup(tmp_path / "remote")
    setup.copy(S0)
    setup.copy(S1)
    Killer(setup, at, is_done=is_done)
    setup.remover = setup.new_remover()
    setup.delete_topic()
    killed = live_until_gone(setup)
    assert killed is (at < STEPS), "the number of steps has changed"
    assert setup.objects() == []
    assert setup.state() is FINISHED
    assert setup.log.removed == set()
    assert setup.remover.unhealthy == ()


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_after_a_kill_and_a_restore_before_the_removal_nothing_more_goes(
    tmp_path: Path, at: int, is_done: bool
) -> None:
    setup = Setup(tmp_path / "remote")
    setup.copy(S0)
    setup.copy(S1)
    before = setup.log.copy()
    Killer(setup, at, is_done=is_done)
    setup.remover = setup.new_remover()
    setup.delete_topic()
    for wait_ms in (0, GRACE_MS, COPY_MAX_MS + 1, GRACE_MS, GRACE_MS):
        setup.clock.advance(wait_ms)
        try:
            setup.run_pass()
        except KilledError:
            break
    left, state = setup.objects(), setup.state()
    setup.restore(before)
    live_until_gone(setup)
    assert setup.objects() == left
    assert setup.state() is state
    known = setup.manager.deletion(PARTITION)
    assert known is not None
    assert bool(setup.remover.unhealthy) is (known.state is not None)
