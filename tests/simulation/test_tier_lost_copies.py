"""Many partitions, few copiers, and a store that says "copied" of what it does not keep."""

import os
from collections.abc import Callable, Iterator
from random import Random

import pytest

from rlm.maintenance.assigned_partition import COPY
from rlm.maintenance.copy_task import READ_BACK_MAX_MS, READ_BACK_MS
from rlm.workers import COPIER_POOL
from tests.support.tier.busy import INTERVAL_MS, BusyTier, partition

SEEDS = range(40 if os.environ.get("TIDEMARK_PROVE") else 3)
POLL_MS = 1.3 * READ_BACK_MS
"""The first look that is too late is before that."""
PROBE_MAX_MS = 1.3 * READ_BACK_MAX_MS
PAUSE_MAX_MS = 36_000
"""Between two probes, and between two looks for one copy."""

Make = Callable[..., BusyTier]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[BusyTier] = []

    def one(*arguments: int, **more: int) -> BusyTier:
        made.append(BusyTier(*arguments, **more))
        return made[-1]

    yield one
    for tier in made:
        tier.workers.end()


def lags(tier: BusyTier) -> list[int]:
    return [tier.lag(number) for number in range(len(tier.logs))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_loses_copies_for_a_while_gets_them_all_afterwards(
    make: Make, seed: int
) -> None:
    rng = Random(seed)
    count, copiers, call_ms = rng.randrange(12, 20), rng.randrange(4, 11), rng.randrange(20, 400)
    tier = make(count, copiers=copiers, call_ms=call_ms, seed=seed)
    tier.run(5_000)
    tier.store.loses = lambda number: True
    for number in range(count):
        tier.close_one(number)
    tier.run(INTERVAL_MS + round(POLL_MS) + count * call_ms)
    assert any(
        "copying waits" in unhealthy and "404" in unhealthy
        for unhealthy in tier.manager.passes.waits.unhealthy_ones()
    )
    assert tier.failed_copies() > 0
    dangling = tier.dangling().total()
    for _ in range(rng.randrange(0, 200)):
        tier.run(1_000)
        assert tier.workers.busy(COPIER_POOL) <= 1, "one probes"
        assert any(
            "copying waits" in unhealthy for unhealthy in tier.manager.passes.waits.unhealthy_ones()
        )
    tier.store.loses = lambda number: False
    tried = tier.store.tried.total()
    tier.run(round(PROBE_MAX_MS) + 2 * PAUSE_MAX_MS + INTERVAL_MS + 4 * call_ms)
    assert lags(tier) == [0] * count, seed
    assert tier.manager.passes.waits.unhealthy_ones() == []
    assert dangling <= copiers + count, seed
    assert tier.store.tried.total() - tried < 10 * count, seed
    tier.run(2 * tier.config.copy_max_ms)
    assert tier.dangling().total() == 0, "what was lost went through deletion"


def test_a_sole_partition_without_kept_copies_is_unhealthy_until_copied(
    make: Make,
) -> None:
    tier = make(1, copiers=2, call_ms=50)
    tier.run(5_000)
    tier.store.loses = lambda number: True
    tier.close_one(0)
    tier.run(INTERVAL_MS + round(POLL_MS))
    assert any(
        "copying waits" in unhealthy and "404" in unhealthy
        for unhealthy in tier.manager.passes.waits.unhealthy_ones()
    )
    tier.store.loses = lambda number: False
    tier.run(round(4 * POLL_MS) + PAUSE_MAX_MS)
    assert lags(tier) == [0]
    assert tier.manager.passes.waits.unhealthy_ones() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_one_lost_copy_closes_a_store_that_works_once_at_most(make: Make, seed: int) -> None:
    rng = Random(seed)
    count, copiers, call_ms = rng.randrange(3, 12), rng.randrange(2, 6), rng.randrange(20, 400)
    tier = make(count, copiers=copiers, call_ms=call_ms, seed=seed)
    rates = dict.fromkeys(range(count), rng.choice([0.01, 0.1]))
    tier.run(INTERVAL_MS, rates)
    lost = list[int]()

    def loses(number: int) -> bool:
        if not lost:
            lost.append(number)
            return True
        return False

    tier.store.loses = loses
    while not lost:
        tier.run(1_000, rates)
    gate, closed = tier.manager.passes.waits.gate(COPY), 0
    for _ in range(200):
        was_open = gate.is_open
        tier.run(1_000, rates)
        closed += was_open and not gate.is_open
    assert closed <= 1, seed
    assert gate.is_open
    tier.run(INTERVAL_MS)
    assert lags(tier) == [0] * count, seed
    assert tier.dangling() == {number: int(number in lost) for number in range(count)}
    tier.run(2 * tier.config.copy_max_ms)
    assert tier.dangling().total() == 0
    ids = {
        segment.id.id
        for number in range(count)
        for segment in tier.metadata.list_segments(partition(number))
    }
    assert ids == tier.store.kept, "nothing leaks, and what counts as copied is there"
