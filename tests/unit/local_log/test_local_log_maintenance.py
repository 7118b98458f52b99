"""Flushes and the expiry of producers go over all logs in slices; turns and pool by hand."""

import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dirs import LogManager
from local_log.manager.maintenance import (
    FLUSHES_AT_ONCE,
    SLICE_LOGS,
    SLICE_PRODUCERS,
    LogMaintenance,
)
from local_log.producers.state import ProducerState
from runtime.executors import InlinePool
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.local_log import NOW_MS, TOPIC_ID, append, open_log, with_config
from tests.support.worlds.pools import HeldPool

FLUSHES = with_config(flush_ms=100)
DUE_MS = NOW_MS + 100


class Turns(ManualScheduler):
    """Calls what is to come soon when a turn is taken."""

    def __init__(self) -> None:
        super().__init__(ManualClock(NOW_MS))
        self.soon = deque[Callable[[], object]]()

    def call_soon(self, fn: Callable[[], object]) -> None:
        self.soon.append(fn)

    def take(self) -> None:
        for _ in range(len(self.soon)):
            self.soon.popleft()()


def _maintenance(logs: list[PartitionLog], turns: Turns, pool: Any, **more: Any) -> LogMaintenance:
    known = {"is_open": lambda _: True, **more}
    return LogMaintenance(logs=lambda: logs, pool=pool, scheduler=turns, **known)


def _unflushed(root: Path, count: int) -> list[PartitionLog]:
    logs = [open_log(root / f"{number}", config=FLUSHES) for number in range(count)]
    for log in logs:
        append(log)
    return logs


def test_a_flush_that_is_due_is_asked_for_once(tmp_path: Path) -> None:
    [log] = _unflushed(tmp_path, 1)
    assert not log.flush_if_due(DUE_MS - 1)
    assert log.flush_if_due(DUE_MS)
    assert not log.flush_if_due(DUE_MS + 1000), "the first may still wait for its disk"
    log.flush()
    assert not log.flush_if_due(DUE_MS + 2000)
    append(log)
    assert log.flush_if_due(DUE_MS)


def test_a_few_flushes_are_in_work_at_a_time_and_all_are_made(tmp_path: Path) -> None:
    logs, turns, pool = _unflushed(tmp_path, 3 * FLUSHES_AT_ONCE + 5), Turns(), HeldPool()
    _maintenance(logs, turns, pool).flush_due(DUE_MS)
    done = []
    while pool.held:
        assert pool.held == 1
        pool.release()
        turns.take()
        done.append(sum(log.recovery_point == 1 for log in logs))
    assert done == [FLUSHES_AT_ONCE, 2 * FLUSHES_AT_ONCE, 3 * FLUSHES_AT_ONCE, len(logs)]


def test_a_pass_over_many_logs_that_are_not_due_takes_turns(tmp_path: Path) -> None:
    (log,) = _unflushed(tmp_path, 1)
    turns = Turns()
    maintenance = _maintenance([log] * (3 * SLICE_LOGS + 1), turns, HeldPool())
    maintenance.flush_due(NOW_MS)
    count = 0
    while turns.soon:
        turns.take()
        count += 1
    assert count == 3


def test_a_pass_that_comes_while_one_runs_begins_none(tmp_path: Path) -> None:
    logs, turns, pool = _unflushed(tmp_path, 2), Turns(), HeldPool()
    maintenance = _maintenance(logs, turns, pool)
    maintenance.flush_due(DUE_MS)
    maintenance.flush_due(DUE_MS + 1)
    assert pool.held == 1
    pool.release()
    turns.take()
    append(logs[0], now_ms=DUE_MS)
    maintenance.flush_due(DUE_MS + 1000)
    assert pool.held == 1


def test_a_deleted_log_does_not_keep_others_from_their_flush(
    tmp_path: Path,
) -> None:
    logs, turns, pool = _unflushed(tmp_path, 3), Turns(), HeldPool()
    _maintenance(logs, turns, pool).flush_due(DUE_MS)
    logs[0].close(clean=False)
    shutil.rmtree(logs[0].directory)
    pool.release()
    assert [log.recovery_point for log in logs] == [0, 1, 1]


def test_after_the_end_the_pool_is_asked_nothing(tmp_path: Path) -> None:
    """A pool that has ended takes no call."""
    logs, turns, pool = _unflushed(tmp_path, 2 * FLUSHES_AT_ONCE), Turns(), HeldPool()
    is_open = [True]
    _maintenance(logs, turns, pool, is_open=lambda _: is_open[0]).flush_due(DUE_MS)
    is_open.insert(0, False)
    pool.release()
    turns.take()
    assert (pool.held, len(turns.soon)) == (0, 0)


class TestExpiry:
    def _with(self, root: Path, number: int, producers: int) -> PartitionLog:
        log = open_log(root / f"{number}")
        log.producers.states.producers = {each: ProducerState(0) for each in range(producers)}
        return log

    def _run(self, turns: Turns, most: Callable[[], int]) -> list[int]:
        """What each turn has changed."""
        changes, before = [most()], most()
        while turns.soon:
            turns.take()
            changes.append(most() - before)
            before = most()
        return changes

    @pytest.mark.parametrize("shape", [[12_000], [1], [100] * 130, [0, 7000, 0, 5000]])
    def test_all_are_looked_at_a_slice_in_a_turn(self, tmp_path: Path, shape: list[int]) -> None:
        logs = [self._with(tmp_path, number, size) for number, size in enumerate(shape)]
        turns = Turns()
        maintenance = _maintenance(logs, turns, InlinePool())

        def silent() -> int:
            states = [each for log in logs for each in log.producers.states.producers.values()]
            return sum(each.silent_since_ms is not None for each in states)

        maintenance.expire_producers(NOW_MS, 1000)
        changes = self._run(turns, silent)
        assert sum(changes) == sum(shape)
        assert max(changes) <= 2 * SLICE_PRODUCERS
        assert len(changes) >= sum(shape) // (2 * SLICE_PRODUCERS)
        maintenance.expire_producers(NOW_MS + 1000, 1000)
        while turns.soon:
            turns.take()
        assert [len(log.producers.states.producers) for log in logs] == [0] * len(shape)

    def test_logs_without_producers_are_looked_at_in_turns(self, tmp_path: Path) -> None:
        log = self._with(tmp_path, 0, 0)
        turns = Turns()
        _maintenance([log] * (3 * SLICE_LOGS + 1), turns, InlinePool()).expire_producers(NOW_MS, 1)
        assert len(self._run(turns, lambda: 0)) == 4

    def test_one_that_is_heard_of_or_forgotten_between_slices_is_no_matter(
        self, tmp_path: Path
    ) -> None:
        log = self._with(tmp_path, 0, 2 * SLICE_PRODUCERS)
        turns = Turns()
        maintenance = _maintenance([log], turns, InlinePool())
        maintenance.expire_producers(NOW_MS, 1000)
        last = 2 * SLICE_PRODUCERS - 1
        del log.producers.states.producers[last]
        log.producers.states.producers[last + 1] = ProducerState(0)
        while turns.soon:
            turns.take()
        known = log.producers.states.producers
        assert known[last + 1].silent_since_ms is None
        assert known[last - 1].silent_since_ms == NOW_MS

    def test_a_log_that_is_gone_is_left_alone(self, tmp_path: Path) -> None:
        log = self._with(tmp_path, 0, 10)
        maintenance = _maintenance([log], Turns(), InlinePool(), is_open=lambda _: False)
        maintenance.expire_producers(NOW_MS, 1)
        assert log.producers.states.producers[3].silent_since_ms is None


def test_the_log_manager_expires_in_turns(tmp_path: Path) -> None:
    turns = Turns()
    ports = replace(simulated(clock=ManualClock(NOW_MS)), scheduler=turns)
    manager = LogManager([tmp_path], lambda _: FLUSHES, ports)
    manager.load()
    log = manager.create("orders", 0, TOPIC_ID)
    log.producers.states.producers = {each: ProducerState(0) for each in range(2 * SLICE_PRODUCERS)}
    manager.expire_producers(NOW_MS, 1000)
    assert turns.soon
    manager.close()
    turns.take()
    assert not turns.soon
    assert log.producers.states.producers[SLICE_PRODUCERS].silent_since_ms is None
