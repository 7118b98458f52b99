"""Many partitions, few copiers, and a store that is slow or away: nobody starves, nothing leaks."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from rlm.config import NO_LIMIT
from rlm.maintenance.assigned_partition import COPY
from rlm.maintenance.copy_policy import PASS_SEGMENTS_MAX
from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from tests.support.tier.busy import INTERVAL_MS, BusyTier, partition

SEEDS = range(40 if os.environ.get("TIDEMARK_PROVE") else 3)
PAUSE_MAX_MS = 30_000

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


def round_ms(tier: BusyTier, copiers: int, call_ms: int) -> int:
    """One turn of each partition."""
    return len(tier.logs) * PASS_SEGMENTS_MAX * call_ms // copiers + call_ms


@pytest.mark.parametrize("seed", SEEDS)
def test_ten_busy_partitions_starve_nobody(make: Make, seed: int) -> None:
    rng = Random(seed)
    busy, quiet, copiers = 10, rng.randrange(5, 15), rng.randrange(2, 5)
    call_ms = rng.randrange(400, 900)
    capacity = copiers * 1_000 / call_ms
    tier = make(busy + quiet, copiers=copiers, call_ms=call_ms, seed=seed, backlog=10)
    rates = dict.fromkeys(range(busy), 1.5 * capacity / busy)
    rates |= {busy + number: 0.2 * capacity / (busy + quiet) for number in range(quiet)}
    # The first look at each, then no segment waits longer than until its partition is looked at and
    # has had two turns.
    tier.run(2 * round_ms(tier, copiers, call_ms), rates)
    limit_ms = INTERVAL_MS + 3 * round_ms(tier, copiers, call_ms)
    for _ in range(120):
        tier.run(1_000, rates)
        waits = {busy + at: tier.oldest_ms(busy + at) for at in range(quiet)}
        assert max(waits.values()) <= limit_ms, (seed, waits)
    copies = [tier.store.tried["copy", number] for number in range(busy)]
    assert max(copies) <= 1.5 * min(copies), (seed, copies)


@pytest.mark.parametrize("seed", SEEDS)
def test_where_the_store_keeps_up_every_lag_is_bounded_and_measured(make: Make, seed: int) -> None:
    rng = Random(seed)
    count, copiers, call_ms = rng.randrange(8, 20), rng.randrange(2, 5), rng.randrange(400, 900)
    tier = make(count, copiers=copiers, call_ms=call_ms, seed=seed, backlog=rng.randrange(10))
    weights = [rng.random() ** 3 for _ in range(count)]  # a few are much busier than the rest
    capacity = copiers * 1_000 / call_ms
    rates = {
        number: min(0.6 * capacity * weight / sum(weights), 0.6 * 1_000 / call_ms)
        for number, weight in enumerate(weights)
    }
    tier.run(150_000, rates)
    limit_ms = INTERVAL_MS + 3 * round_ms(tier, copiers, call_ms)
    for _ in range(120):
        tier.run(1_000, rates)
        waits = [tier.oldest_ms(number) for number in range(count)]
        assert max(waits) <= limit_ms, (seed, waits)
    tier.run(INTERVAL_MS + limit_ms)
    assert [tier.lag(number) for number in range(count)] == [0] * count
    assert set(tier.measured("RemoteCopyLagSegments").values()) == {0}
    assert set(tier.measured("RemoteCopyLagBytes").values()) == {0}


def probes_at_most(outage_ms: int) -> int:
    """How often an outage of that length is probed, with pauses at their shortest."""
    probes, at_ms, pause_ms = 0, 0.0, 500.0
    while at_ms < outage_ms:
        at_ms += 0.8 * pause_ms
        pause_ms = min(2 * pause_ms, PAUSE_MAX_MS)
        probes += 1
    return probes


@pytest.mark.parametrize("seed", SEEDS)
def test_an_outage_costs_an_id_a_probe_and_then_all_continue(make: Make, seed: int) -> None:
    rng = Random(seed)
    count, copiers, call_ms = rng.randrange(8, 20), rng.randrange(1, 5), rng.randrange(400, 900)
    tier = make(count, copiers=copiers, call_ms=call_ms, seed=seed)
    rates = dict.fromkeys(range(count), 0.3 * copiers * 1_000 / call_ms / count)
    tier.run(60_000, rates)
    for _ in range(2):
        dangling_before, tried_before = tier.dangling().total(), tier.store.tried.total()
        tier.store.error = lambda number: RetriableRemoteStorageError("away")
        outage_ms = rng.randrange(10_000, 120_000)
        gate = tier.manager.passes.waits.gate(COPY)
        for _ in range(outage_ms // 1_000):
            was_open = gate.is_open
            tier.run(1_000, rates)  # longer than a call
            assert was_open or len(tier.store.copying) <= 1, seed
        probes = probes_at_most(outage_ms)
        assert tier.dangling().total() - dangling_before <= copiers + probes, seed
        # Deletions are probed apart, with the same pauses.
        assert tier.store.tried.total() - tried_before <= 2 * (copiers + probes), seed
        unhealthy_ones = [
            str(unhealthy) for unhealthy in tier.manager.passes.waits.unhealthy_ones()
        ]
        assert any(
            "copying waits" in unhealthy and "away" in unhealthy for unhealthy in unhealthy_ones
        ), unhealthy_ones
        tier.run(INTERVAL_MS, rates)
        lags = {number: tier.lag(number) for number in range(count)}
        assert sum(tier.measured("RemoteCopyLagSegments").values()) > 0.5 * sum(lags.values())
        tier.store.error = lambda number: None
        until_all = sum(lags.values()) * call_ms / copiers / 0.6
        tier.run(round(1.2 * PAUSE_MAX_MS + until_all) + 4 * call_ms, rates)
        limit_ms = INTERVAL_MS + 3 * round_ms(tier, copiers, call_ms)
        assert max(tier.oldest_ms(number) for number in range(count)) <= limit_ms, seed
        assert tier.manager.passes.waits.unhealthy_ones() == []


def test_all_that_waited_start_at_once_when_the_store_is_back(make: Make) -> None:
    tier = make(30, copiers=3, call_ms=10)
    tier.store.error = lambda number: RetriableRemoteStorageError("away")
    tier.run(5_000)
    for number in range(30):
        tier.close_one(number)
    tier.run(INTERVAL_MS)
    assert any(
        "copying waits" in unhealthy for unhealthy in tier.manager.passes.waits.unhealthy_ones()
    )
    assert sum(tier.measured("RemoteCopyLagSegments").values()) == 30
    tier.store.error = lambda number: None
    while tier.manager.passes.waits.unhealthy_ones():
        tier.run(100)
    tier.run(1_000)
    assert [tier.lag(number) for number in range(30)] == [0] * 30


@pytest.mark.parametrize("is_retriable", [True, False])
def test_a_partition_that_fails_by_itself_does_not_stop_the_others(
    make: Make, is_retriable: bool
) -> None:
    error = (RetriableRemoteStorageError if is_retriable else RemoteStorageError)("only this one")
    tier = make(10, copiers=2, call_ms=20)
    tier.store.error = lambda number: error if number == 3 else None
    rates = dict.fromkeys(range(10), 0.3)
    tier.run(100_000, rates)
    lags = [tier.oldest_ms(number) for number in range(10) if number != 3]
    assert max(lags) <= 2 * INTERVAL_MS, lags
    assert tier.lag(3) > 10
    assert tier.dangling()[3] <= probes_at_most(100_000)


def test_a_store_that_refuses_everybody_is_an_outage_too(make: Make) -> None:
    tier = make(40, copiers=4, call_ms=20)
    tier.store.error = lambda number: RemoteStorageError("no such bucket")
    tier.run(200_000, dict.fromkeys(range(40), 0.2))
    assert tier.dangling().total() <= 4 + 2 + probes_at_most(200_000)
    assert any(
        "no such bucket" in unhealthy for unhealthy in tier.manager.passes.waits.unhealthy_ones()
    )


def test_a_partition_that_goes_in_the_middle_of_its_probe_stops_nobody(make: Make) -> None:
    tier = make(6, copiers=2, call_ms=400)
    tier.store.error = lambda number: RetriableRemoteStorageError("away")
    for number in range(6):
        tier.close_one(number)
    tier.run(1_500)
    while not tier.store.copying:
        tier.run(100)
    (prober,) = tier.store.copying
    tier.manager.unassign(partition(prober).topic_id, prober)
    tier.store.error = lambda number: None
    tier.run(2 * INTERVAL_MS)
    assert [tier.lag(number) for number in range(6) if number != prober] == [0] * 5


@pytest.mark.parametrize("is_followed", [True, False])
def test_what_is_led_elsewhere_does_not_wait_for_the_store(make: Make, is_followed: bool) -> None:
    tier = make(10, copiers=2, call_ms=10)
    tier.store.error = lambda number: RetriableRemoteStorageError("away")
    tier.run(5_000)
    for number in range(10):
        tier.close_one(number)
    tier.run(INTERVAL_MS)
    waits = tier.manager.passes.waits._held[COPY]
    assert waits.count > 5
    for number in range(10):
        if is_followed:
            tier.assign(number, is_leader=False)
        else:
            tier.manager.unassign(partition(number).topic_id, number)
    assert waits.count == 0


def test_a_follower_shows_no_lag(make: Make) -> None:
    tier = make(2, copiers=1, call_ms=10)
    tier.store.error = lambda number: RetriableRemoteStorageError("away")
    tier.run(1_000)
    for number in (0, 1, 1):
        tier.close_one(number)
    tier.run(INTERVAL_MS + 1_000)
    assert tier.measured("RemoteCopyLagSegments") == {0: 1, 1: 2}
    tier.assign(1, is_leader=False)
    assert tier.measured("RemoteCopyLagSegments") == {0: 1}


QUOTA_BYTES = 200
"""A second: some two segments."""


def test_the_copy_quota_costs_looks_by_segments_and_not_by_all_that_wait(make: Make) -> None:
    """Each partition is looked at in its interval, for both kinds of pass, and when it may copy."""
    tier = make(60, copiers=4, call_ms=20, backlog=20, copy_bytes_per_second=QUOTA_BYTES)
    tier.run(INTERVAL_MS)
    looks, copies = tier.many.looks, tier.store.tried.total()
    tier.run(2 * INTERVAL_MS)
    looks, copies = tier.many.looks - looks, tier.store.tried.total() - copies
    assert copies > 100
    assert looks <= 2 * 2 * 60 + 3 * copies, (looks, copies)


def test_the_copy_quota_goes_round(make: Make) -> None:
    tier = make(30, copiers=4, call_ms=20, backlog=40, copy_bytes_per_second=QUOTA_BYTES)
    tier.run(10 * INTERVAL_MS)
    copies = [tier.store.tried["copy", number] for number in range(30)]
    assert sum(copies) < 30 * 40, "all wait for it"
    assert max(copies) <= min(copies) + 2 * PASS_SEGMENTS_MAX, copies
    assert tier.manager.passes.throttled.quota.throttling(tier.clock.monotonic_ms()).average_ms > 0


def test_a_copy_quota_that_is_raised_holds_nobody_up_any_more(make: Make) -> None:
    tier = make(30, copiers=4, call_ms=20, backlog=5, copy_bytes_per_second=1)
    tier.run(5_000)
    assert len(tier.manager.passes.throttled) == 30
    tier.manager.unassign(partition(7).topic_id, 7)
    assert len(tier.manager.passes.throttled) == 29
    tier.manager.passes.reconfigure(replace(tier.config, copy_bytes_per_second=NO_LIMIT))
    tier.run(5_000)
    assert len(tier.manager.passes.throttled) == 0
    assert [tier.lag(number) for number in range(30) if number != 7] == [0] * 29
