"""Few threads that delete, and a store whose deletions are slow: no partition starves."""

from collections.abc import Iterator

import pytest

from rlm.maintenance.expiration_task import PASS_MS
from tests.support.tier.busy import INTERVAL_MS, BusyTier

SLOW_MS = 2_000


@pytest.fixture
def tier() -> Iterator[BusyTier]:
    """One thread deletes; the first partition has far more to be deleted than the others."""
    made = BusyTier(4, copiers=1, call_ms=10)
    for number, count in enumerate((60, 3, 3, 3)):
        for _ in range(count):
            made.close_one(number)
    made.run(2 * INTERVAL_MS)
    assert [made.lag(number) for number in range(4)] == [0] * 4
    made.store.call_ms = SLOW_MS
    for log in made.logs:
        log.delete_records(log.end)
    yield made
    made.workers.end()


def deletions(tier: BusyTier) -> list[int]:
    return [tier.store.tried["delete", number] for number in range(4)]


def test_slow_deletions_of_one_partition_do_not_hold_up_the_others(
    tier: BusyTier,
) -> None:
    tier.run(INTERVAL_MS)
    tier.run(4 * (PASS_MS + SLOW_MS))
    assert deletions(tier)[1:] == [3, 3, 3], deletions(tier)
    assert 0 < deletions(tier)[0] < 60
    tier.run(60 * SLOW_MS + INTERVAL_MS)
    assert deletions(tier) == [60, 3, 3, 3], "each once, until no copy can land any more"
    assert tier.store.kept == set()
