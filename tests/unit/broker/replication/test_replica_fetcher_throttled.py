"""Replicas that are held back: how much they fetch, and which of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.replication.throttle import EVERY_MS, FollowerThrottle
from tests.support.sim.clock import ManualClock
from tests.support.worlds.followers import FOLLOWER, Pair, following

RATE = "follower.replication.throttled.rate"
RECORD = b"v" * 1_000
SETTINGS = {RATE: "2000", "replica.fetch.max.bytes": "1000", "replica.fetch.wait.max.ms": "50"}


def named(*replicas: str) -> dict[str, Any]:
    """Settings of a topic whose replicas are throttled."""
    return {"follower_replication_throttled_replicas": frozenset(replicas)}


def filled(pair: Pair, count: int, index: int = 0) -> None:
    for _ in range(count):
        pair.leader.append("t", RECORD, index=index)


@pytest.mark.parametrize("replicas", [("*",), (f"0:{FOLLOWER}", f"1:{FOLLOWER}")])
async def test_all_throttled_replicas_share_the_rate(
    tmp_path: Path, replicas: tuple[str, ...]
) -> None:
    async with following(tmp_path, settings=SETTINGS) as pair:
        pair.add_topic("t", 2, **named(*replicas))
        for index in (0, 1):
            filled(pair, 20, index)
        await pair.run(5_000)
        fetched = sum(pair.follower.log("t", index).log_end_offset for index in (0, 1))
        assert 8 <= fetched <= 13  # 10,000 bytes, and what was asked for first
        assert not pair.fetchers.problems()
        await pair.run(20_000)
        assert all(pair.logs_are_equal("t", index) for index in (0, 1))


@pytest.mark.parametrize("replicas", [(), ("0:7",), (f"1:{FOLLOWER}",)])
async def test_others_are_not_held_back(tmp_path: Path, replicas: tuple[str, ...]) -> None:
    async with following(tmp_path, settings=SETTINGS | {RATE: "0"}) as pair:
        pair.add_topic("t", **named(*replicas))
        filled(pair, 20)
        await pair.run(2_000)
        assert pair.logs_are_equal("t")


async def test_a_higher_rate_counts_within_a_second(tmp_path: Path) -> None:
    async with following(tmp_path, settings=SETTINGS | {RATE: "1"}) as pair:
        pair.add_topic("t", **named("*"))
        filled(pair, 20)
        await pair.run(5_000)
        assert pair.follower.log("t").log_end_offset == 1
        pair.config = pair.config.with_dynamic({RATE: "1000000"}, {})
        await pair.run(EVERY_MS + 500)
        assert pair.logs_are_equal("t")


def test_what_has_all_that_is_committed_is_never_held_back() -> None:
    clock, rate = ManualClock(0), 100
    throttle = FollowerThrottle(FOLLOWER, clock, lambda: rate)
    config = SimpleNamespace(follower_replication_throttled_replicas=("*",))
    partition: Any = SimpleNamespace(partition=0, log=SimpleNamespace(config=config))
    throttle.took(partition, 50)
    assert throttle.pause_ms(partition, lag=0) == 0
    assert throttle.pause_ms(partition, lag=1) == 500
    clock.advance(499)
    assert throttle.pause_ms(partition, lag=1) == 1
    clock.advance(1)
    assert throttle.pause_ms(partition, lag=1) == 0
    throttle.took(partition, 10_000)
    assert throttle.pause_ms(partition, lag=1) == EVERY_MS
    rate = 2**63 - 1
    assert throttle.pause_ms(partition, lag=1) == 0
