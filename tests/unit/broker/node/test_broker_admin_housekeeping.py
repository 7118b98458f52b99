"""Recurring tasks: when they begin, that they continue after a failure, and that they end."""

import pytest

from broker.node.housekeeping import Housekeeping, Task
from runtime.executors import InlinePool
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler


def made(*tasks: Task) -> tuple[Housekeeping, ManualScheduler]:
    scheduler = ManualScheduler(ManualClock())
    return Housekeeping(list(tasks), scheduler=scheduler, pool=InlinePool()), scheduler


@pytest.mark.parametrize("in_pool", [False, True])
def test_a_task_runs_after_the_delay_and_then_at_its_interval(in_pool: bool) -> None:
    runs: list[int] = []
    keeping, scheduler = made(Task("count", 100, lambda: runs.append(1), in_pool))
    keeping.start(1_000)
    scheduler.advance(999)
    assert len(runs) == 0
    scheduler.advance(1)
    assert len(runs) == 1
    scheduler.advance(300)
    assert len(runs) == 4
    keeping.stop()
    scheduler.advance(1_000)
    assert len(runs) == 4


def test_never_is_never() -> None:
    runs: list[int] = []
    keeping, scheduler = made(Task("never", 2**63 - 1, lambda: runs.append(1)))
    keeping.start(0)
    scheduler.advance(1_000_000)
    assert runs == []


def test_a_failing_disk_is_reported_once_and_the_task_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = [True]

    def run() -> None:
        if failing[0]:
            raise OSError(28, "no space left")

    keeping, scheduler = made(Task("checkpoint", 10, run, in_pool=True))
    keeping.start(0)
    scheduler.advance(55)
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    failing[0] = False
    scheduler.advance(20)
    assert [r.levelname for r in caplog.records] == ["ERROR", "WARNING"]


def test_stopped_before_it_began_it_never_runs() -> None:
    runs: list[int] = []
    keeping, scheduler = made(Task("count", 10, lambda: runs.append(1)))
    keeping.start(100)
    keeping.stop()
    scheduler.advance(1_000)
    assert runs == []
